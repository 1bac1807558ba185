"""`odar calibrate` is killed and run again; a server counts the requests."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter

from support.fault_server import FaultServer
from support.payloads import chat_payload
from support.waiting import until

ITEMS = 32
TOML = """
profile = "custom"
[providers.local]
kind = "openai"
base_url = "{url}"
[models.m]
provider = "local"
logprobs = true
n = true
price = {{ input = 0, output = 0 }}
[fast]
model = "m"
[slow]
model = "m"
temperature = {temperature}
"""


class Sums:
    """Answer a number of requests and let the others wait."""

    def __init__(self) -> None:
        self.answered: Counter[int] = Counter()
        self.allowance = 0
        self.waiting = 0

    async def __call__(self, exchange) -> None:
        body = exchange.json
        if self.allowance <= 0:
            self.waiting += 1
            await asyncio.Event().wait()
        self.allowance -= 1
        number = int(" ".join(m["content"] for m in body["messages"]).split("What is ")[-1].split()[0])
        self.answered[number] += 1
        await exchange.send_json(chat_payload(*[f"Judgment: CORRECT\nAnswer: {number}"] * body.get("n", 1)))


async def start(folder) -> asyncio.subprocess.Process:
    arguments = ("calibrate", "data.jsonl", "--concurrency", "2", "--json")
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import sys; from odar.cli.main import main; main(sys.argv[1:])", *arguments, cwd=folder,
        env={**os.environ, "ODAR_CACHE_DIR": str(folder / "cache")},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


def answers_kept(folder):
    """Return the number of items in the journal of this run."""
    journals = list((folder / "cache" / "calibration").glob("*.jsonl"))
    return sum(len(journal.read_text().splitlines()) - 1 for journal in journals)


async def test_a_killed_calibration_is_resumed_unless_settings_change(tmp_path):
    sums = Sums()
    lines = [json.dumps({"query": f"What is {i} + 0 ?", "answer": i}) for i in range(ITEMS)]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    async with FaultServer() as server:
        server.behave(sums)
        (tmp_path / "odar.toml").write_text(TOML.format(url=server.url, temperature=0.3))
        sums.allowance = 3 * ITEMS // 2  # an item is three requests: answer, verify, solve
        process = await start(tmp_path)
        for _ in range(1200):
            if sums.waiting:
                break
            assert process.returncode is None, (await process.stderr.read()).decode()
            await asyncio.sleep(0.05)
        await until(lambda: answers_kept(tmp_path) >= ITEMS // 2 - 2)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        assert process.returncode == -signal.SIGKILL
        assert not (tmp_path / "calibration.json").exists()
        assert ITEMS // 2 - 2 <= (kept := answers_kept(tmp_path)) < ITEMS

        sums.allowance = 10_000
        out, errors = await (await start(tmp_path)).communicate()
        assert json.loads(out)["written"] == "calibration.json", errors.decode()
        assert f"{ITEMS - kept} of {ITEMS} items to answer" in errors.decode()
        assert sorted(sums.answered) == list(range(ITEMS))
        again = {number: count for number, count in sums.answered.items() if count != 3}
        assert len(again) <= 2  # what two items had in flight at the kill is asked again, nothing else

        before = sum(sums.answered.values())
        (tmp_path / "odar.toml").write_text(TOML.format(url=server.url, temperature=0.9))
        await (await start(tmp_path)).communicate()
        assert sum(sums.answered.values()) - before == 3 * ITEMS
        assert len([*(tmp_path / "cache" / "calibration").glob("*.jsonl")]) == 2
