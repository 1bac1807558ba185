"""A model server that counts what it was paid for, and can be made to wait: for tests that kill its clients."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.fault_server import Exchange, FaultServer
from support.payloads import chat_payload

PATIENCE_S = 90.0
"""A busy machine takes its time to start a process."""
TOML = """
profile = "tiny"
prompts = "default"
calibration = ""
[providers.up]
kind = "openai"
base_url = "{url}"
{limits}
[models.m]
provider = "up"
logprobs = true
n = {together}
price = {{ input = 1, output = 2 }}
[routing]
estimator = "length"
[fast]
model = "m"
timeout_s = 170
[slow]
model = "m"
timeout_s = 170
[limits]
deadline_s = 170
"""
"""Whoever waits for a server that was told to wait gives up after the test has."""


class Upstream(FaultServer):
    """Answers "What is A + B?" after `delay_s`. A reply counts as paid when it was sent whole.

    With `free` set, only so many more replies are given; the others wait until it is raised or cleared.
    """

    def __init__(self, delay_s: float = 0.0) -> None:
        super().__init__()
        self.delay_s = delay_s
        self.free: int | None = None
        self.paid: Counter[str] = Counter()
        """Replies sent, by what was asked: two of the same are one too many."""
        self.behave(self._reply)

    async def _reply(self, exchange: Exchange) -> None:
        await asyncio.sleep(self.delay_s)
        while self.free is not None and self.free <= 0:
            await asyncio.sleep(0.01)
        if self.free is not None:
            self.free -= 1
        asked: dict[str, Any] = exchange.json
        a, b = map(int, re.findall(r"What is (\d+) \+ (\d+)", asked["messages"][-1]["content"])[-1])
        await exchange.send_json(chat_payload(*[f"Judgment: CORRECT\nAnswer: {a + b}"] * asked.get("n", 1)))
        self.paid[json.dumps([asked["messages"], asked.get("seed")])] += 1

    def configure(self, folder: Path, limits: str = "", *, together: bool = False) -> None:
        """Write an odar.toml that names this server; samples are asked for one by one, or together."""
        toml = TOML.format(url=self.url, limits=limits, together=str(together).lower())
        (folder / "odar.toml").write_text(toml)


async def until(condition: Callable[[], bool], running: asyncio.Task[Any]) -> None:
    """Wait for a condition while something runs, no longer than a busy machine may take for it."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            assert not running.done(), running.result()  # raises what it raised, or shows what it said
            await asyncio.sleep(0.02)


def sums(count: int, paths: tuple[str, ...] = ("simple", "medium", "hard")) -> list[dict[str, Any]]:
    """So many questions over the paths in turn, in a file's form."""
    return [{"id": f"q{i}", "query": f"What is {i} + 1?", "path": paths[i % len(paths)]} for i in range(count)]


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    """A JSONL file."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Its rows."""
    return [json.loads(line) for line in path.read_text().splitlines()]
