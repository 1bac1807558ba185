"""The steps before an untrusted program runs, one by one; that together they hold is in test_hostile.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from odar.evals.scorers import sandbox_start

pytestmark = pytest.mark.skipif(os.name != "posix", reason="no resource limits on this system")

LIMITS = """
import json, resource
from odar.evals.scorers.sandbox_start import limit
{before}
limit({seconds}, {memory}, {size}, {files}, {processes})
names = ("CPU", "AS", "FSIZE", "NOFILE", "CORE", "NPROC")
print(json.dumps({{name: resource.getrlimit(getattr(resource, "RLIMIT_" + name)) for name in names}}))
"""


def child(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


def limits(before="", seconds=50, memory=4 << 30, size=1 << 20, files=64, processes=None):
    code = LIMITS.format(before=before, seconds=seconds, memory=memory, size=size, files=files, processes=processes)
    return {name: tuple(pair) for name, pair in json.loads(child(code)).items()}


def test_every_limit_holds_for_good():
    """The hard one too: a program that may raise its own limit has none."""
    found = limits(processes=500)
    assert found["CPU"] == (50, 50)
    assert found["AS"] == (4 << 30, 4 << 30)
    assert found["FSIZE"] == (1 << 20, 1 << 20)
    assert found["NOFILE"] == (64, 64)
    assert found["CORE"] == (0, 0)
    assert found["NPROC"] == (500, 500)


def test_processes_that_cannot_be_counted_are_not_limited():
    import resource

    assert limits(processes=None)["NPROC"] == resource.getrlimit(resource.RLIMIT_NPROC)


def test_a_limit_that_the_system_refuses_leaves_the_others():
    """As where whoever started us has less of it than we would allow."""
    before = (
        "import resource; real = resource.setrlimit\n"
        "def refuse(kind, pair):\n"
        "    if kind == resource.RLIMIT_AS: raise ValueError('not allowed to raise maximum limit')\n"
        "    real(kind, pair)\n"
        "resource.setrlimit = refuse"
    )
    found = limits(before)
    assert found["AS"] != (4 << 30, 4 << 30)
    assert (found["FSIZE"], found["NOFILE"], found["CORE"]) == ((1 << 20, 1 << 20), (64, 64), (0, 0))


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="this system has no /proc to count in")
def test_processes_of_this_user_are_counted_with_their_threads():
    before = sandbox_start._running()
    assert before is not None and before >= 1
    code = "import threading, time\nfor _ in range(3): threading.Thread(target=time.sleep, args=(30,), daemon=True).start()\nprint('up', flush=True)\ntime.sleep(30)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"up\n"
        tasks = len([*Path(f"/proc/{process.pid}/task").iterdir()])
        counted = sandbox_start._running()
        process.kill()
    assert tasks == 4
    assert counted is not None and counted >= 4


def test_a_system_without_proc_counts_nobody(monkeypatch):
    def nothing(path):
        raise FileNotFoundError(path)

    monkeypatch.setattr(sandbox_start.os, "scandir", nothing)
    assert sandbox_start._running() is None


def test_a_system_without_landlock_goes_without(monkeypatch, tmp_path):
    monkeypatch.setattr(sandbox_start.sys, "platform", "darwin")
    assert sandbox_start.restrict_files(tmp_path) is False


def test_a_kernel_without_landlock_goes_without(monkeypatch, tmp_path):
    class Old:
        @staticmethod
        def syscall(*_):
            return -1

    monkeypatch.setattr(sandbox_start.ctypes, "CDLL", lambda *_, **__: Old)
    assert sandbox_start.restrict_files(tmp_path) is False
