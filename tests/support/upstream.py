"""A model server that counts the replies it sent and can hold them back, for tests that kill its clients."""

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

TIMEOUT_S = 90.0
"""Long enough for a busy machine to start a process."""
TOML = """
profile = "tiny"
prompts = "paper"
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
"""The timeouts are longer than the test's own, so that a client never gives up on a reply that is held back."""


class Upstream(FaultServer):
    """Answers "What is A + B?" after `delay_s`. A reply counts as paid when it was sent whole.

    With `free` set, only so many more replies are given; the others wait until it is raised or cleared.
    """

    def __init__(self, delay_s: float = 0.0) -> None:
        super().__init__()
        self.delay_s = delay_s
        self.free: int | None = None
        self.paid: Counter[str] = Counter()
        """Replies sent, by request."""
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
    """Wait for a condition while a task runs; fail if the task ends first or after `TIMEOUT_S`."""
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            assert not running.done(), running.result()  # raises its exception or shows its result
            await asyncio.sleep(0.02)


def sums(count: int, paths: tuple[str, ...] = ("simple", "medium", "hard")) -> list[dict[str, Any]]:
    """Return `count` questions as rows of a file; they use the paths in turn."""
    return [{"id": f"q{i}", "query": f"What is {i} + 1?", "path": paths[i % len(paths)]} for i in range(count)]


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write a JSONL file and return its path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a JSONL file."""
    return [json.loads(line) for line in path.read_text().splitlines()]
