"""The sandbox against programs that misbehave, for real."""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path

import pytest

from odar.evals.scorers.sandbox import SandboxLimits, isolation, run_python
from support.waiting import wait_until

pytestmark = pytest.mark.skipif(os.name != "posix", reason="no resource limits on this system")
SHORT = SandboxLimits(seconds=3.0)
needs_namespaces = pytest.mark.skipif(not isolation(), reason="unshare is not permitted here")


MAIN = f"main_{uuid.uuid4().hex[:12]}.py"
"""A name of our own: other tests run sandboxes on this machine at the same time."""


def run(program: str, stdin: str = "", limits: SandboxLimits = SHORT):
    return run_python({MAIN: program}, MAIN, stdin, limits)


def left_behind() -> list[str]:
    """Processes of this file's programs that are still alive, the zombies aside."""
    return [path.name for path in Path("/proc").iterdir() if path.name.isdigit() and _is_ours(path.name)]


def _is_ours(pid: str) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return MAIN.encode() in command and state != "Z"


def test_an_ordinary_program():
    outcome = run("import sys\nprint(sum(map(int, sys.stdin)))\nprint('warn', file=sys.stderr)", "1\n2\n")
    assert (outcome.ok, outcome.stdout, outcome.stderr) == (True, "3\n", "warn\n")


def test_failure_is_seen():
    outcome = run("raise SystemExit(3)")
    assert (outcome.ok, outcome.code) == (False, 3)
    assert "ZeroDivisionError" in run("1 / 0").stderr


def test_an_endless_loop_is_stopped():
    outcome = run("while True: pass", limits=SandboxLimits(seconds=1.0))
    assert outcome.timed_out and not outcome.ok


def test_a_sleeper_is_stopped():
    assert run("import time; time.sleep(100)", limits=SandboxLimits(seconds=0.5)).timed_out


def test_a_fork_bomb_runs_against_the_limit():
    program = (
        "import os, time\nchildren = 0\n"
        "try:\n    while True:\n        if os.fork() == 0:\n            time.sleep(60); os._exit(0)\n        children += 1\n"
        "except OSError:\n    print('stopped', children)\n"
    )
    outcome = run(program, limits=SandboxLimits(seconds=5.0, processes=16))
    assert outcome.stdout.startswith("stopped")
    assert 0 < int(outcome.stdout.split()[1]) <= 16


def test_a_fork_bomb_that_goes_on_leaves_nothing_behind():
    program = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"
    assert run(program, limits=SandboxLimits(seconds=1.0, processes=8)).timed_out
    if not Path("/proc").exists():
        return
    wait_until(lambda: left_behind() == [])


def test_a_flood_of_output_is_cut():
    outcome = run("while True: print('x' * 10_000)", limits=SandboxLimits(seconds=5.0, output=50_000))
    assert outcome.flooded and not outcome.ok
    assert len(outcome.stdout) == 50_000


def test_memory_is_limited():
    outcome = run("x = bytearray(4 * 1024**3)", limits=SandboxLimits(memory=512 * 1024**2))
    assert not outcome.ok
    assert "MemoryError" in outcome.stderr


def test_files_are_limited_in_size():
    outcome = run(
        "f = open('big', 'wb')\nfor _ in range(100): f.write(b'x' * 10**6); f.flush()",
        limits=SandboxLimits(file_size=10**6),
    )
    assert not outcome.ok
    assert "File too large" in outcome.stderr


def test_it_may_write_in_its_folder_and_the_folder_goes_away():
    outcome = run("import os\nopen('mine', 'w').write('1')\nprint(os.getcwd())")
    assert outcome.ok
    assert not Path(outcome.stdout.strip()).exists()


@pytest.mark.skipif(sys.platform != "linux", reason="Landlock is Linux's")
def test_it_may_not_write_elsewhere(tmp_path):
    target = tmp_path / "yours"
    target.write_text("precious")
    tmp_path.chmod(0o777)
    target.chmod(0o666)
    outcome = run(f"open({str(target)!r}, 'w').write('gone')")
    assert not outcome.ok and "PermissionError" in outcome.stderr
    assert target.read_text() == "precious"


@pytest.mark.skipif(sys.platform != "linux", reason="Landlock is Linux's")
def test_it_may_not_read_what_is_not_the_systems(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("key")
    assert "PermissionError" in run(f"print(open({str(secret)!r}).read())").stderr


def test_it_does_not_see_the_environment(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "do-not-leak")
    assert "do-not-leak" not in run("import os; print(dict(os.environ))").stdout


@needs_namespaces
def test_there_is_no_network():
    program = "import socket\ntry:\n    socket.create_connection(('127.0.0.1', 1), timeout=2)\nexcept OSError as e: print(e.errno)"
    assert run(program).stdout.strip() in ("13", "101", "111")
    interfaces = run("import socket; print([name for _, name in socket.if_nameindex()])").stdout
    assert "eth" not in interfaces and "ens" not in interfaces


@needs_namespaces
def test_a_daemon_does_not_outlive_it():
    program = (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(300)\n    os._exit(0)\n"
        "print('left one behind')"
    )
    assert run(program).ok
    wait_until(lambda: left_behind() == [])
