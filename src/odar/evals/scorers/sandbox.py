"""Untrusted programs: run with limits in a temporary folder, without network, killed with everything they started.

SandboxLimits hold for each process and, in memory, processes and disk, for the run as a whole (`sandbox_usage`).

This protects a measurement from what a model writes by mistake: loops, fork bombs, floods of output, writes to your
files. Against somebody who wants to break out, run the evaluation in a container or virtual machine of its own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from odar.errors import InputError
from odar.evals.scorers.sandbox_usage import Cgroup, Usage, Watcher

_START = Path(__file__).with_name("sandbox_start.py")
_OWN_PROCESSES = 2
"""The sandbox's own: `unshare` and what it starts."""


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What a program may use."""

    seconds: float = 10.0
    """Wall time; processor time is limited to the same, rounded up."""
    memory: int = 1024**3
    """Bytes of address space of each process."""
    run_memory: int = 1024**3
    """Bytes of memory of all processes together."""
    file_size: int = 16 * 1024**2
    """Bytes of any one file."""
    disk: int = 64 * 1024**2
    """Bytes of all files together, deleted ones that are still open among them."""
    files: int = 64
    """Open files."""
    processes: int = 32
    """Processes and threads of the run."""
    output: int = 1024**2
    """Bytes of standard output, and of standard error, that are kept; a program that writes more is stopped."""


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """How a program ended."""

    code: int
    """Its exit status; negative for the signal that killed it."""
    stdout: str
    stderr: str
    timed_out: bool = False
    flooded: bool = False
    """Whether it was stopped for writing too much."""
    exceeded: str = ""
    """Which limit of the whole run it was over: memory, processes or disk."""

    @property
    def ok(self) -> bool:
        """Whether it ended by itself, in time, within the limits of the run, with status 0."""
        return self.code == 0 and not self.timed_out and not self.flooded and not self.exceeded


def run_python(
    files: Mapping[str, str], main: str, stdin: str = "", limits: SandboxLimits | None = None
) -> ProgramResult:
    """Run one of some Python files in a temporary folder that goes away afterwards.

    Raises:
        InputError: this system has no resource limits.

    >>> run_python({"main.py": "print(input() * 2)"}, "main.py", stdin="ab").stdout
    'abab\\n'
    """
    limits = limits or SandboxLimits()
    if os.name != "posix":
        raise InputError("running a model's code needs the resource limits of Linux or macOS")
    with tempfile.TemporaryDirectory(prefix="odar-sandbox-", ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        for name, text in files.items():
            (place / name).write_text(text, encoding="utf-8")
        place.chmod(0o777)  # started by root, the program is somebody else; the folder above is 0700 to others
        command = [*isolation(), sys.executable, "-I", "-B", "-u", str(_START)]
        alone = int("--user" in isolation())  # a user namespace counts its processes by itself
        given = (int(limits.seconds) + 1, limits.memory, limits.file_size, limits.files, limits.processes, alone)
        group = Cgroup.create(limits.run_memory, limits.processes + _OWN_PROCESSES)
        try:
            return _run([*command, *map(str, given), main], place, stdin, limits, group)
        finally:
            if group is not None:
                group.remove()


@cache
def isolation() -> tuple[str, ...]:
    """The command that takes away the network and the sight of other processes; empty where the system has none."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return ()
    user = () if os.geteuid() == 0 else ("--user", "--map-current-user")
    command = (unshare, *user, "--net", "--ipc", "--pid", "--fork", "--kill-child")
    trial = subprocess.run([*command, sys.executable, "-S", "-c", ""], capture_output=True, check=False)
    return command if trial.returncode == 0 else ()


def _run(
    command: Sequence[str], place: Path, stdin: str, limits: SandboxLimits, group: Cgroup | None
) -> ProgramResult:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(place), "TMPDIR": str(place), "LANG": "C.UTF-8"}
    handle = -1 if group is None else group.open()
    if handle >= 0:
        environment["ODAR_SANDBOX_CGROUP"] = str(handle)
    process = subprocess.Popen(  # what nobody has read, within limits
        command,
        cwd=place,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        pass_fds=() if handle < 0 else (handle,),
    )
    if handle >= 0:
        os.close(handle)
    assert process.stdin
    assert process.stdout
    assert process.stderr
    readers = [_Reader(pipe, limits.output, process) for pipe in (process.stdout, process.stderr)]
    feeder = threading.Thread(target=_feed, args=(process.stdin, stdin.encode()), daemon=True)
    feeder.start()
    # The kernel keeps a cgroup's limits itself; nothing but this thread keeps the disk's.
    most = Usage(limits.run_memory, limits.processes + _OWN_PROCESSES, limits.disk)
    if group is not None:
        most = Usage(0, 0, limits.disk)
    watcher = Watcher(process.pid, place, most, lambda: _kill(process))
    timed_out = False
    try:
        process.wait(timeout=limits.seconds)
    except subprocess.TimeoutExpired:
        timed_out = True
    finally:
        _kill(process)
        watcher.end()
    for thread in (feeder, *readers):
        thread.join()
    out, err = (reader.text for reader in readers)
    exceeded = watcher.exceeded or (group.exceeded if group is not None else "")
    flooded = any(reader.flooded for reader in readers)
    return ProgramResult(process.returncode, out, err, timed_out, flooded, exceeded)


class _Reader(threading.Thread):
    """Keeps the first bytes of a stream; kills the program that goes on writing."""

    def __init__(self, pipe: IO[bytes], most: int, process: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)
        self._pipe, self._most, self._process = pipe, most, process
        self._kept = bytearray()
        self.flooded = False
        self.start()

    def run(self) -> None:
        """Read to the end, or until it is too much."""
        with self._pipe:
            while chunk := os.read(self._pipe.fileno(), 65_536):
                self._kept += chunk[: self._most - len(self._kept)]
                if len(self._kept) >= self._most:
                    self.flooded = True
                    _kill(self._process)
                    return

    @property
    def text(self) -> str:
        return self._kept.decode("utf-8", "replace")


def _feed(pipe: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), pipe:
        pipe.write(data)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The program and whatever it started: its process group, and with it the namespace where there is one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
