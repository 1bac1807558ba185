"""How many threads the local model should use.

llama.cpp's threads wait for each other by spinning: one thread too many on a busy machine makes the model
ten times slower, not a little slower. So threads follow the cores that are idle, not those that exist.
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

_SAMPLE_S = 0.08
_MOST_USEFUL = 4
"""A model of 135M parameters gains nothing from more."""


def threads_for(idle: float) -> int:
    """Threads for so many idle cores: nearly idle counts as idle, half idle does not.

    >>> [threads_for(idle) for idle in (0.0, 0.9, 1.5, 1.8, 30.0)]
    [1, 1, 1, 2, 4]
    """
    return max(1, min(math.floor(idle + 0.25), _MOST_USEFUL))


def idle_between(before: str, after: str) -> float | None:
    """Idle cores between two readings of /proc/stat; None where they do not say.

    >>> idle_between("cpu 0 0 0 0 0\\ncpu0 0\\ncpu1 0", "cpu 5 0 5 25 5\\ncpu0 0\\ncpu1 0")
    1.5
    """
    first, second = _ticks(before), _ticks(after)
    if first is None or second is None or (total := sum(second) - sum(first)) <= 0:
        return None
    # Fields 3 and 4 are idle and waiting for a disk; both leave the core to us.
    idle = sum(second[3:5]) - sum(first[3:5])
    return _core_count(after) * idle / total


def idle_cores() -> float:
    """Idle cores that this process may use, now."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(_measured_idle() if Path("/proc/stat").exists() else _idle_by_load(), usable)


def _measured_idle() -> float:
    stat = Path("/proc/stat")
    before = stat.read_text()
    time.sleep(_SAMPLE_S)
    idle = idle_between(before, stat.read_text())
    return _idle_by_load() if idle is None else idle


def _idle_by_load() -> float:
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return (os.cpu_count() or 1) - load


def _ticks(stat: str) -> list[int] | None:
    for line in stat.splitlines():
        if line.startswith("cpu "):
            # Guest time (fields 8 and 9) is already counted in user time.
            return [int(field) for field in line.split()[1:9]]
    return None


def _core_count(stat: str) -> int:
    return sum(line.startswith("cpu") and not line.startswith("cpu ") for line in stat.splitlines())
