"""`odar ask` as a process in a pseudo-terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import sys

import pytest

from support.constants import odar_code
from support.environment import kept_environment
from support.fault_server import FaultServer, ok, status

pytestmark = pytest.mark.skipif(os.name != "posix", reason="no pseudo terminals on this system")
CODE = odar_code({"odar.providers.http": "ATTEMPTS = 1"})
TOML = """
profile = "tiny"
prompts = "paper"
calibration = ""
[providers.up]
kind = "openai"
base_url = "{url}"
[models.m]
provider = "up"
logprobs = true
[fast]
model = "m"
[slow]
model = "m"
"""


@pytest.fixture
async def up():
    async with FaultServer() as server:
        yield server


async def watch(folder, up, *arguments: str) -> tuple[int, str]:
    """Run `odar ask` in a terminal; return its exit code and all of its output."""
    (folder / "odar.toml").write_text(TOML.format(url=up.url))
    master, slave = pty.openpty()
    environ = {**kept_environment(), "HOME": str(folder), "TERM": "xterm-256color", "COLUMNS": "80"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CODE, "ask", *arguments), cwd=folder, env=environ, stdin=slave, stdout=slave, stderr=slave
    )  # fmt: skip
    os.close(slave)
    screen = b""

    def read() -> bytes:
        try:
            return os.read(master, 65536)
        except OSError:  # the other side is closed: Linux has no end of file here
            return b""

    while data := await asyncio.to_thread(read):
        screen += data
    os.close(master)
    return await process.wait(), screen.decode()


def plain(screen: str) -> str:
    """Remove colours, cursor movements and spinner frames."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen).replace("\r", "\n")


async def test_the_text_is_shown_once(tmp_path, up):
    up.behave(ok("Two and two make four.\nAnswer: 4"))
    code, screen = await watch(tmp_path, up, "--path", "hard", "What is 2 + 2?")
    lines = [line.strip() for line in plain(screen).splitlines() if line.strip()]
    assert (code, lines[-2:]) == (0, ["Two and two make four.", "Answer: 4"])
    assert plain(screen).count("Two and two") == 1
    assert "thinking" in screen  # the spinner, before


async def test_the_path_is_shown_while_it_runs(tmp_path, up):
    up.behave(ok("Judgment: CORRECT\nAnswer: 4", delay_s=0.4))
    code, screen = await watch(tmp_path, up, "--path", "medium", "--explain", "What is 2 + 2?")
    assert code == 0
    assert "asking fast" in plain(screen)
    assert "asking slow:verify" in plain(screen)


async def test_a_failure_ends_with_one_line(tmp_path, up):
    up.behave(status(503))
    code, screen = await watch(tmp_path, up, "What is 2 + 2?")
    last = plain(screen).rpartition("odar: ")[2]
    assert code == 3
    assert last.startswith("no agent produced an answer")
    assert all(len(line) <= 80 for line in last.splitlines())  # folded
    assert "Traceback" not in screen
    assert screen.rstrip().endswith("\x1b[?25h") or "\x1b[?25h" in screen  # the cursor is back


async def test_without_question_and_piped_input_there_is_an_error(tmp_path, up):
    code, screen = await watch(tmp_path, up)
    assert (code, "nothing to answer; try: odar ask" in screen) == (2, True)
