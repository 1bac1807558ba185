"""Attacks on the gateway's time and memory: clients and model servers that waste them (items 7 to 11)."""

from __future__ import annotations

import asyncio

from attack.scene import Scene, attack
from support.fault_server import Exchange


@attack(0, "nothing", brief=True)
async def nothing(scene: Scene) -> None:
    """No attack at all: the control."""
    await asyncio.sleep(scene.seconds)


@attack(7, "deadlines of 50 ms")
async def short_deadlines(scene: Scene) -> None:
    """One client sends questions with `odar.deadline_s` 0.05 to a model that needs longer; others must not be refused."""

    async def slowly(exchange: Exchange) -> None:
        await asyncio.sleep(0.3 if b"hurry" in exchange.body else 0)
        await scene.fast.well(exchange)

    scene.fast.misbehave(slowly)
    turns = [{"role": "user", "content": "Question 1: hurry"}]
    body = {"model": "odar-simple", "messages": turns, "odar": {"deadline_s": 0.05}}
    statuses: list[int] = []
    until = asyncio.get_running_loop().time() + scene.seconds
    while asyncio.get_running_loop().time() < until:
        burst = await asyncio.gather(*(scene.post("/v1/chat/completions", body) for _ in range(12)))
        statuses += [status for status, _ in burst]
    scene.say(f"{len(statuses)} requests")
    scene.check(set(statuses) == {504}, f"expected 504 alone, got {sorted(set(statuses))}")
