"""The figures of the first step: start-up, and the hard path against one slow call. `make bench` runs it."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from odar.config import load_settings
from odar.engine import Odar
from support.fault_server import FaultServer, echo_n

QUESTION = "A baker has 12 trays with 6 buns each and sells 30 buns. How many buns are left?"


def seconds(*command: str, repeat: int = 7) -> float:
    """The median wall time of a command."""
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


async def timed(odar: Odar, path: str) -> tuple[float, int]:
    """Seconds of the slow agent's own call on the medium path, or of the whole hard path."""
    answer = await odar.aask(QUESTION, path=path, seed=7)
    return answer.trace.spend.seconds, len(answer.trace.candidates)


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
        async with Odar(load_settings("embedded", **overrides)) as odar:
            await odar.aask(QUESTION, path="simple")
            hard = statistics.median([(await timed(odar, "hard"))[0] for _ in range(5)])
    ratio = hard / delay_s
    print(f"hard path, server with {delay_s * 1e3:.0f} ms:  {hard:.3f} s = {ratio:.2f} × one call (goal < 1.5)")


async def on_the_embedded_model() -> None:
    """The hard path against one slow sample, both on the embedded model."""
    async with (
        Odar(load_settings("embedded")) as odar,
        Odar(load_settings("embedded", routing__samples=1)) as single,
    ):
        await odar.aask("Is Paris the capital of France?", path="simple")
        ratios = []
        for _ in range(3):
            whole = await odar.aask(QUESTION, path="hard", seed=7)
            one = await single.aask(QUESTION, path="hard", seed=7)
            alone = max(call.seconds for call in one.trace.calls if call.step == "solve")
            fast = max(call.seconds for call in one.trace.calls if call.step == "answer")
            # The embedded model takes one request at a time: the slow call's own time excludes its wait.
            ratios.append(whole.trace.spend.seconds / (alone - fast))
    ratio = statistics.median(ratios)
    print(f"hard path, embedded model:       {ratio:.2f} × one slow call (goal < 4.5)")


if __name__ == "__main__":
    odar_command = str(Path(sys.executable).parent / "odar")
    print(f"import odar:                     {seconds(sys.executable, '-c', 'import odar'):.3f} s (goal < 0.2)")
    print(f"odar --help:                     {seconds(odar_command, '--help'):.3f} s (goal < 0.4)")
    asyncio.run(against_a_server(0.3))
    asyncio.run(on_the_embedded_model())
