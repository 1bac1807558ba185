"""Kill -9 for real: a process, a server that counts what it answered, and a panel that must come out whole."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from odar.evals.panel.parquet import read_entries
from support.fault_server import FaultServer
from support.payloads import chat_payload

TESTS = Path(__file__).parents[2]
ITEMS = 6
PROGRAM = f"""
import sys
from odar.cli.main import main
from odar.evals.benchmarks.base import BENCHMARKS
from support.benchmarks import Sums
BENCHMARKS.add("sums", Sums({ITEMS}))
main(sys.argv[1:])
"""
TOML = """
profile = "custom"
[providers.local]
kind = "openai"
base_url = "{url}"
[models.m]
provider = "local"
logprobs = true
n = {together}
price = {{ input = 1, output = 2 }}
[fast]
model = "m"
[slow]
model = "m"
"""


class Counting:
    """Answers everything, and knows what it answered; holds back whatever comes once its allowance is used up."""

    def __init__(self) -> None:
        self.answered: Counter[tuple[str, int, int]] = Counter()
        self.allowance = 0
        self.waiting = 0

    async def __call__(self, exchange) -> None:
        body = exchange.json
        if self.allowance <= 0:
            self.waiting += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.waiting -= 1
        self.allowance -= 1
        words = " ".join(message["content"] for message in body["messages"])
        number = words.split("What is ")[-1].split()[0]
        await exchange.send_json(chat_payload(*[f"Judgment: CORRECT\nAnswer: {number}"] * body.get("n", 1)))
        self.answered[words, body["seed"], body.get("n", 1)] += 1


async def start(folder: Path) -> asyncio.subprocess.Process:
    arguments = ("eval", "collect", "sums", "--out", "panel", "--yes", "--quiet", "--concurrency", "2")
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, *arguments, cwd=folder, env=environment,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def until(condition, process) -> None:
    for _ in range(600):
        if condition():
            return
        assert process.returncode is None, (await process.stderr.read()).decode()
        await asyncio.sleep(0.05)
    raise AssertionError("it took too long")


@pytest.mark.parametrize(
    ("together", "requests", "how"),
    [("true", 3, signal.SIGKILL), ("false", 7, signal.SIGKILL), ("true", 3, signal.SIGINT)],
)
async def test_no_item_is_lost_none_is_twice_and_none_is_paid_twice(tmp_path, together, requests, how):
    counting = Counting()
    async with FaultServer() as server:
        server.behave(counting)
        (tmp_path / "odar.toml").write_text(TOML.format(url=server.url, together=together))
        for allowance in (1, requests + 1):
            counting.allowance = allowance
            process = await start(tmp_path)
            await until(lambda: counting.allowance <= 0 and counting.waiting, process)
            await asyncio.sleep(0.3)  # time to journal what was answered; what waits has not been billed
            process.send_signal(how)
            errors = (await process.communicate())[1].decode()
            assert process.returncode == (-signal.SIGKILL if how is signal.SIGKILL else 130), errors
            await until_gone(counting)
        counting.allowance = 10_000
        process = await start(tmp_path)
        errors = (await process.communicate())[1].decode()
        assert process.returncode == 0, errors
    entries = list(read_entries(tmp_path / "panel" / "panel.parquet"))
    assert sorted(entry.key.id for entry in entries) == [str(i) for i in range(ITEMS)]
    assert all(len(entry.attempts) == 7 and entry.attempts[0].score == 1 for entry in entries)
    assert set(counting.answered.values()) == {1}
    assert len(counting.answered) == ITEMS * requests


async def until_gone(counting) -> None:
    for _ in range(100):
        if not counting.waiting:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the server still waits for a client that is gone")
