"""What a run uses as a whole: many processes, many files, each within its own limits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from odar.evals.scorers.sandbox import ResourceUsage, SandboxLimits, Watcher, measure, run_python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are counted in /proc")
MIB = 1024**2
SLEEP = "import time\nprint('ready', flush=True)\ntime.sleep(60)\n"


def run(program: str, **limits) -> object:
    return run_python({"main.py": program}, "main.py", limits=SandboxLimits(seconds=20.0, **limits))


def test_memory_of_all_processes_together():
    program = (
        "import os, time\n"
        "for _ in range(6):\n"
        "    if os.fork() == 0:\n"
        "        kept = bytearray(os.urandom(1) * (60 * 1024**2)); time.sleep(30); os._exit(0)\n"
        "time.sleep(30)\n"
    )
    outcome = run(program, memory=512 * MIB, run_memory=200 * MIB)
    assert (outcome.exceeded, outcome.ok, outcome.timed_out) == ("memory", False, False)


def test_the_same_memory_within_the_limit():
    program = "kept = bytearray(60 * 1024**2)\nprint(len(kept))"
    assert run(program, run_memory=400 * MIB).ok


def test_many_small_files_are_a_full_disk():
    program = (
        "import itertools\nfor number in itertools.count():\n    open(f'{number}', 'wb').write(b'x' * 500_000)\n"
    )
    outcome = run(program, file_size=MIB, disk=8 * MIB)
    assert (outcome.exceeded, outcome.ok) == ("disk", False)


def test_empty_files_count():
    program = "import itertools\nfor number in itertools.count():\n    open(f'{number}', 'w').close()\n"
    assert run(program, disk=4 * MIB).exceeded == "disk"


def test_deleted_files_that_are_still_open_count():
    program = (
        "import os, time\nkept = []\nfor number in range(30):\n"
        "    kept.append(open(f'{number}', 'wb')); kept[-1].write(b'x' * 900_000); kept[-1].flush(); os.remove(f'{number}')\n"
        "time.sleep(30)\n"
    )
    outcome = run(program, file_size=MIB, disk=8 * MIB)
    assert (outcome.exceeded, outcome.timed_out) == ("disk", False)


def test_memory_files_count_as_disk():
    program = (
        "import os, time\nkept = [os.memfd_create(str(number)) for number in range(30)]\n"
        "for each in kept: os.write(each, b'x' * 900_000)\ntime.sleep(30)\n"
    )
    assert run(program, file_size=MIB, disk=8 * MIB).exceeded == "disk"


def test_processes_of_a_run_are_counted_with_their_threads(tmp_path):
    program = (
        "import os, threading, time\n"
        "for _ in range(3): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "for _ in range(2):\n    if os.fork() == 0: time.sleep(60); os._exit(0)\n"
        "print('ready', flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout.readline() == b"ready\n"
        used = measure(process.pid, tmp_path)
        process.kill()
    assert used.processes == 4 + 2
    assert used.memory > MIB


def test_the_watcher_kills_for_too_many_processes(tmp_path):
    killed = threading.Event()
    with subprocess.Popen([sys.executable, "-c", SLEEP], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout.readline() == b"ready\n"
        watcher = Watcher(process.pid, tmp_path, ResourceUsage(0, 1, 0), killed.set)
        assert not killed.wait(0.3)
        watcher.end()
        assert watcher.exceeded == ""
        child = subprocess.Popen([sys.executable, "-c", SLEEP], stdout=subprocess.PIPE, process_group=0)
        assert child.stdout.readline() == b"ready\n"
        own = Watcher(os.getpid(), tmp_path, ResourceUsage(0, 1, 0), killed.set)
        assert killed.wait(10)
        own.end()
        assert own.exceeded == "processes"
        for each in (child, process):
            each.kill()
        child.wait()
        child.stdout.close()
