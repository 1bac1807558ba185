"""`odar eval collect` is killed and resumed; a server counts the replies, and the panel must be complete."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from odar.lab.recording.files import open_recording
from support.upstream import Upstream, until

TESTS = Path(__file__).parents[2]
ITEMS = 6
AT_ONCE = 2
PROGRAM = f"""
import sys
from odar.cli.main import main
from odar.lab.benchmarks.base import BENCHMARKS
from support.benchmarks import sums
BENCHMARKS.add("sums", sums({ITEMS}))
main(sys.argv[1:])
"""


async def start(folder: Path) -> asyncio.subprocess.Process:
    arguments = (
        "eval",
        "collect",
        "sums",
        "--out",
        "panel.jsonl",
        "--yes",
        "--quiet",
        "--concurrency",
        str(AT_ONCE),
    )
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, *arguments, cwd=folder, env=environment,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


def written(folder: Path) -> int:
    """Return how many replies of unfinished items are on disk."""
    parts = folder / "panel.jsonl.parts"
    return parts.read_bytes().count(b"\n") if parts.exists() else 0


@pytest.mark.parametrize(
    ("together", "requests", "how"),
    [(True, 3, signal.SIGKILL), (False, 7, signal.SIGKILL), (True, 3, signal.SIGINT)],
)
async def test_resuming_after_a_kill_loses_no_item_and_pays_for_none_twice(tmp_path, together, requests, how):
    """End the process twice, each time after some replies are on disk and while other requests are in progress."""
    async with Upstream() as server:
        server.configure(tmp_path, together=together)
        for answered in (1, requests + 1):
            server.free, before = answered, written(tmp_path)
            process = await start(tmp_path)
            ending = asyncio.create_task(process.communicate())
            await until(lambda: server.busy >= AT_ONCE and written(tmp_path) == before + answered, ending)  # noqa: B023
            process.send_signal(how)
            errors = (await ending)[1].decode()
            assert process.returncode == (-signal.SIGKILL if how is signal.SIGKILL else 130), errors
            await server.until_idle(30)  # a reply into the connection of a dead client would count as paid
            assert server.free == 0
        server.free = None
        process = await start(tmp_path)
        errors = (await process.communicate())[1].decode()
        assert process.returncode == 0, errors
    entries = list(open_recording(tmp_path / "panel.jsonl").items())
    assert sorted(entry.key.id for entry in entries) == [str(i) for i in range(ITEMS)]
    assert all(len(entry.attempts) == 7 and entry.attempts[0].score == 1 for entry in entries)
    assert set(server.paid.values()) == {1}
    assert len(server.paid) == ITEMS * requests
