"""`bench.py startup`: time of import and --help, and of the hard path compared with one slow call."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import click

from odar.config import load_settings
from odar.difficulty.base import ConstantEstimator
from odar.engine import Odar
from odar.types import Query
from support.fault_server import FaultServer, echo_n

QUESTION = "A baker has 12 trays with 6 buns each and sells 30 buns. How many buns are left?"
QUESTIONS = (QUESTION, "What is the capital of Japan?", "What is 8 times 12?")


def seconds(*command: str, repeat: int = 7) -> float:
    """The median wall time of a command."""
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


async def against_a_server(delay_s: float) -> None:
    """The hard path on a server that answers after a fixed delay."""
    async with FaultServer() as server:
        server.behave(echo_n(delay_s=delay_s))
        overrides = {
            "providers": {"local": {"kind": "openai", "base_url": server.url}},
            "models": {"m": {"provider": "local", "logprobs": True}},
            "fast__model": "m",
            "slow__model": "m",
            "prompts": "default",
        }
        async with Odar(load_settings("tiny", **overrides)) as odar:
            await odar.aask(QUESTION, path="simple")
            hard = statistics.median([await hard_path_seconds(odar, QUESTION) for _ in range(5)])
    ratio = hard / delay_s
    print(f"hard path, server with {delay_s * 1e3:.0f} ms:  {hard:.3f} s = {ratio:.2f} × one call (goal < 1.5)")


async def hard_path_seconds(odar: Odar, question: str) -> float:
    """The whole hard path, difficulty aside."""
    return (await odar.aask(question, path="hard", seed=7)).trace.spend.seconds


async def slow_call_seconds(odar: Odar, question: str, sample: int) -> float:
    """One of the hard path's slow samples, drawn alone."""
    team = odar.team(Query(question), odar.ledger(), seed=7 + sample)
    started = time.perf_counter()
    await team.solve(1)
    return time.perf_counter() - started


async def on_the_local_model(*, fresh: bool) -> None:
    """The hard path against one slow call, over a few questions, from a cold start or with every prompt cached.

    One slow call is the mean over samples drawn alone: the first may be the longest or the shortest of the five.
    """

    async def timed(measure: Callable[[Odar], Awaitable[float]]) -> float:
        if not fresh:
            return await measure(warm)
        async with Odar(load_settings("tiny"), estimator=ConstantEstimator()) as odar:
            return await measure(odar)

    ratios = []
    async with Odar(load_settings("tiny"), estimator=ConstantEstimator()) as warm:
        if not fresh:
            await hard_path_seconds(warm, "Is Paris the capital of France?")
        for question in QUESTIONS:
            whole = await timed(lambda odar, q=question: hard_path_seconds(odar, q))
            alone = [await timed(lambda odar, q=question, k=k: slow_call_seconds(odar, q, k)) for k in range(3)]
            ratios.append(whole / statistics.mean(alone))
    shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    start = "cold start" if fresh else "all cached"
    print(f"hard path, tiny, {start}: {statistics.median(ratios):.2f} × one slow call (goal < 4.5; {shown})")


@click.command("startup")
def startup() -> None:
    """How long import and --help take, and the hard path against one slow call."""
    odar_command = str(Path(sys.executable).parent / "odar")
    print(f"import odar:                     {seconds(sys.executable, '-c', 'import odar'):.3f} s (goal < 0.2)")
    print(f"odar --help:                     {seconds(odar_command, '--help'):.3f} s (goal < 0.4)")
    asyncio.run(against_a_server(0.3))
    asyncio.run(on_the_local_model(fresh=True))
    asyncio.run(on_the_local_model(fresh=False))
