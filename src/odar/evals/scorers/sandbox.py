"""Untrusted programs: run with limits in a temporary folder, without network, killed with everything they started.

This protects a measurement from what a model writes by mistake: loops, fork bombs, floods of output, writes to your
files. Against an attacker who wants to break out, run the evaluation in a container or virtual machine of its own.

Resource limits of the kernel count per process and per file; a thread checks memory, processes and disk of the run
as a whole every 50 ms and kills a run that is over its limits.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, NamedTuple

from odar.errors import InputError

_EVERY_S = 0.05
_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_SMALLEST_FILE = 4096
"""What every file and folder counts at least, so that a million empty files are not free."""
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
    """Run one of some Python files in a temporary folder that is deleted afterwards.

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
        place.chmod(0o777)  # started by root, the program runs as another user; the folder above is 0700 to others
        command = [*isolation(), sys.executable, "-I", "-B", "-u", str(_START)]
        alone = int("--user" in isolation())  # a user namespace counts its processes by itself
        given = (int(limits.seconds) + 1, limits.memory, limits.file_size, limits.files, limits.processes, alone)
        return _run([*command, *map(str, given), main], place, stdin, limits)


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


def _run(command: Sequence[str], place: Path, stdin: str, limits: SandboxLimits) -> ProgramResult:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(place), "TMPDIR": str(place), "LANG": "C.UTF-8"}
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, cwd=place, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    readers = [_Reader(stream, limits.output, process) for stream in (process.stdout, process.stderr)]
    feeder = threading.Thread(target=_feed, args=(process.stdin, stdin.encode()), daemon=True)
    feeder.start()
    most = ResourceUsage(limits.run_memory, limits.processes + _OWN_PROCESSES, limits.disk)
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
    out, err = (reader.kept.decode("utf-8", "replace") for reader in readers)
    flooded = any(reader.flooded for reader in readers)
    return ProgramResult(process.returncode, out, err, timed_out, flooded, watcher.exceeded)


class _Reader(threading.Thread):
    """Keeps the first bytes of a stream; kills the program that goes on writing."""

    def __init__(self, pipe: IO[bytes], most: int, process: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)
        self._pipe, self._most, self._process = pipe, most, process
        self.kept = bytearray()
        self.flooded = False
        self.start()

    def run(self) -> None:
        """Read to the end, or until it is too much."""
        with self._pipe:
            while chunk := os.read(self._pipe.fileno(), 65_536):
                self.kept += chunk[: self._most - len(self.kept)]
                if len(self.kept) >= self._most:
                    self.flooded = True
                    _kill(self._process)
                    return


def _feed(pipe: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), pipe:
        pipe.write(data)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the program and everything it started: its process group, and with it its namespace."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class ResourceUsage(NamedTuple):
    """What a run uses at one moment, or may use at most, all of its processes and files together."""

    memory: int
    processes: int
    disk: int


class Watcher(threading.Thread):
    """Kills a run as soon as it is over one of its limits; `exceeded` says which. A limit of 0 is none."""

    def __init__(self, root: int, folder: Path, limits: ResourceUsage, kill: Callable[[], None]) -> None:
        super().__init__(name="odar-sandbox-watcher", daemon=True)
        self.exceeded = ""
        self._root, self._folder, self._limits, self._kill = root, folder, limits, kill
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:
        """Look until the run has ended or is over a limit."""
        while not self._ended.wait(_EVERY_S):
            used = measure(self._root, self._folder)
            for name, amount, most in zip(used._fields, used, self._limits, strict=True):
                if 0 < most < amount:
                    self.exceeded = name
                    self._kill()
                    return

    def end(self) -> None:
        """The run has ended: stop looking."""
        self._ended.set()
        self.join()


def measure(root: int, folder: Path) -> ResourceUsage:
    """What the process `root`, everything it started and the folder use now."""
    processes = list(_descendants(root))
    files: dict[tuple[int, int], int] = {}
    for status in (*_files_in(folder), *_unlinked(processes)):
        least = _SMALLEST_FILE if status.st_nlink else 0
        files[status.st_dev, status.st_ino] = max(status.st_blocks * 512, least)
    return ResourceUsage(sum(map(_memory, processes)), sum(map(_threads, processes)), sum(files.values()))


def _descendants(root: int) -> Iterator[int]:
    """The process and all that it started, directly or not; those that were orphaned count by their session."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir() if _PROC.is_dir() else ():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parent, session = int(fields[1]), int(fields[3])
                children.setdefault(root if session == root else parent, []).append(int(entry.name))
    waiting, seen = [root], {0}
    while waiting:
        pid = waiting.pop()
        if pid not in seen:
            seen.add(pid)
            waiting += children.get(pid, ())
            yield pid


def _memory(pid: int) -> int:
    """Return resident bytes; a page that several processes share counts in parts if the kernel reports that."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int((_PROC / str(pid) / "statm").read_text().split()[1]) * _PAGE
    return 0


def _threads(pid: int) -> int:
    with contextlib.suppress(OSError):
        return sum(1 for _ in (_PROC / str(pid) / "task").iterdir())
    return 0


def _files_in(folder: Path) -> Iterator[os.stat_result]:
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with contextlib.suppress(OSError):
                yield os.lstat(os.path.join(place, name))  # noqa: PTH118 - many files, several times a second


def _unlinked(processes: list[int]) -> Iterator[os.stat_result]:
    """Files that are open but have no name any more, memory files among them: no folder shows them."""
    for pid in processes:
        with contextlib.suppress(OSError):
            for handle in (_PROC / str(pid) / "fd").iterdir():
                with contextlib.suppress(OSError):
                    status = handle.stat()
                    if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
                        yield status
