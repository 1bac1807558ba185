"""What a sandboxed run uses as a whole, and the thread that stops a run which uses too much.

Resource limits count per process and per file: 32 processes of 1 GiB each are within them. Where cgroup v2 is
available the kernel limits memory and processes of the run together; everywhere else on Linux, and for the disk, a
thread looks every 50 ms and kills the run that is over. So a run may be over for a moment, never for long.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_EVERY_S = 0.05
_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_SMALLEST_FILE = 4096
"""What every file and folder counts at least, so that a million empty files are not free."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run uses at one moment, all of its processes and files together."""

    memory: int
    processes: int
    disk: int


def measure(root: int, folder: Path) -> Usage:
    """What the process `root`, everything it started and the folder use now."""
    processes = list(descendants(root))
    files = {**_files_in(folder), **_unlinked(processes)}
    return Usage(_memory(processes), sum(map(_threads, processes)), sum(files.values()))


class Watcher(threading.Thread):
    """Kills a run as soon as it is over one of its limits; `exceeded` says which.

    Args:
        root: the run's first process.
        folder: the only place where the run may write.
        limits: the most that the run as a whole may use; a limit of 0 is somebody else's to keep.
        kill: ends the run.
    """

    def __init__(self, root: int, folder: Path, limits: Usage, kill: Callable[[], None]) -> None:
        super().__init__(name="odar-sandbox-watcher", daemon=True)
        self.exceeded = ""
        self._root, self._folder, self._limits, self._kill = root, folder, limits, kill
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:
        """Look until the run has ended or is over a limit."""
        while not self._ended.wait(_EVERY_S):
            used = measure(self._root, self._folder)
            for name in ("memory", "processes", "disk"):
                if 0 < getattr(self._limits, name) < getattr(used, name):
                    self.exceeded = name
                    self._kill()
                    return

    def end(self) -> None:
        """The run has ended: stop looking."""
        self._ended.set()
        self.join()


class Cgroup:
    """A cgroup v2 of one run: the kernel keeps the limits on memory and processes for all of its processes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def create(cls, memory: int, processes: int, parent: Path | None = None) -> Cgroup | None:
        """A new cgroup with these limits; None where this user may not make one or the controllers are missing."""
        parent = parent or _own_cgroup()
        if parent is None:
            return None
        try:
            path = Path(tempfile.mkdtemp(prefix="odar-sandbox-", dir=parent))
        except OSError:
            return None
        group = cls(path)
        try:
            (path / "memory.max").write_text(str(memory))
            (path / "pids.max").write_text(str(processes))
        except OSError:
            group.remove()
            return None
        with contextlib.suppress(OSError):  # a machine without swap has no such file
            (path / "memory.swap.max").write_text("0")
        return group

    def open(self) -> int:
        """A handle to `cgroup.procs`: the process that writes 0 to it joins the cgroup."""
        return os.open(self._path / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)

    @property
    def exceeded(self) -> str:
        """`memory` where the kernel killed a process for it, `processes` where it refused one, else empty."""
        for name, file, event in (("memory", "memory.events", "oom_kill"), ("processes", "pids.events", "max")):
            with contextlib.suppress(OSError, ValueError):
                counts = dict(line.split() for line in (self._path / file).read_text().splitlines())
                if int(counts.get(event, 0)):
                    return name
        return ""

    def remove(self) -> None:
        """Kill what is left in it, then remove it."""
        with contextlib.suppress(OSError):
            (self._path / "cgroup.kill").write_text("1")
        with contextlib.suppress(OSError):
            self._path.rmdir()


def descendants(root: int) -> Iterator[int]:
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


def _memory(processes: list[int]) -> int:
    """Resident bytes; a page that several processes share counts in parts, where the kernel says so."""
    return sum(map(_proportional, processes))


def _proportional(pid: int) -> int:
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


def _files_in(folder: Path) -> dict[tuple[int, int], int]:
    """Bytes on disk by device and inode."""
    found: dict[tuple[int, int], int] = {}
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with contextlib.suppress(OSError):
                status = os.lstat(os.path.join(place, name))  # noqa: PTH118 - many files, several times a second
                found[status.st_dev, status.st_ino] = max(status.st_blocks * 512, _SMALLEST_FILE)
    return found


def _unlinked(processes: list[int]) -> dict[tuple[int, int], int]:
    """Files that are open but have no name any more, memory files among them: no folder shows them."""
    found: dict[tuple[int, int], int] = {}
    for pid in processes:
        with contextlib.suppress(OSError):
            for handle in (_PROC / str(pid) / "fd").iterdir():
                with contextlib.suppress(OSError):
                    status = handle.stat()
                    if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
                        found[status.st_dev, status.st_ino] = status.st_blocks * 512
    return found


def _own_cgroup() -> Path | None:
    """The cgroup v2 that this process is in, where it has one with the controllers for its children."""
    with contextlib.suppress(OSError):
        for line in (_PROC / "self" / "cgroup").read_text().splitlines():
            if line.startswith("0::"):
                path = _CGROUPS / line[3:].lstrip("/")
                for place in (path, path.parent):
                    file = place / "cgroup.subtree_control"
                    if file.exists() and {"memory", "pids"} <= set(file.read_text().split()):
                        return place
    return None
