"""Memory of requests that failed is freed at once: no error that is kept refers to its request."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress

from odar.conversation import Message
from support.fault_server import Behaviour, answer, hang, reset, status
from support.live_gateway import live, slow, start, up
from support.waiting import until

__all__ = ["live", "slow", "start", "up"]

MARK = "mark of a large question "
REFUSALS: dict[str, Behaviour] = {
    "refused": status(413),
    "not found": status(404),
    "failed": status(503),
    "rate limited": status(429),
    "broken off": reset(),
    "not JSON": answer("nothing"),
    "no choices": answer({"choices": []}),
    "no answer": hang(),
}


def kept() -> int:
    """Return the attackers' messages that are still in memory."""
    return sum(type(each) is Message and MARK in each.text for each in gc.get_objects())


async def test_nothing_of_a_failed_request_waits_for_the_garbage_collector(start, up, slow):
    live = await start(
        limits__deadline_s=0.3,
        constants={
            "odar.providers.http.ATTEMPTS": 2,
            "odar.providers.http.FIRST_PAUSE_S": 0.01,
            "odar.providers.breaker.FAILURES": 1000,
        },
    )
    turns = [{"role": "user", "content": MARK * 100}]
    chat, both = "/v1/chat/completions", ("quick", "odar-simple", "odar-medium", "odar-hard")
    bodies = [
        (chat, {"model": model, "messages": turns, "stream": each}) for model in both for each in (False, True)
    ]
    bodies.append((chat, {"model": "deep", "messages": turns, "n": 3}))
    bodies.append(("/v1/embeddings", {"model": "quick", "input": MARK * 100}))
    gc.collect()
    gc.disable()
    try:
        for name, behaviour in REFUSALS.items():
            up.behave(behaviour)
            slow.behave(behaviour)
            for path, body in bodies:
                async with live.http.post(live.url + path, json=body) as response:
                    await response.read()
                await live.entry()
                live.memory_store.entries.clear()
                live.memory_store.records.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(2.0):
                        await until(lambda: not kept())
                assert not kept(), (name, body["model"], body.get("stream"))
    finally:
        gc.enable()
