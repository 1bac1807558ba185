from __future__ import annotations

import os
from pathlib import Path

import pytest

from odar.providers import cores


def stat(*ticks: int, cores: int = 2) -> str:
    lines = ["cpu  " + " ".join(map(str, ticks)), *[f"cpu{n} 0 0 0 0" for n in range(cores)], "intr 5 5", "ctxt 9"]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("after", "idle"),
    [
        ((0, 0, 0, 16, 0, 0, 0, 0, 0, 0), 2.0),
        ((8, 0, 0, 8, 0, 0, 0, 0, 0, 0), 1.0),
        ((8, 0, 4, 0, 4, 0, 0, 0, 0, 0), 0.5),  # waiting for a disk is idle
        ((16, 0, 0, 0, 0, 0, 0, 0, 0, 0), 0.0),
        ((8, 0, 0, 0, 0, 0, 0, 8, 0, 0), 0.0),  # stolen by the host is not idle
        ((8, 0, 0, 8, 0, 0, 0, 0, 8, 0), 1.0),  # guests are part of user time already
    ],
)
def test_idle_between(after: tuple[int, ...], idle: float) -> None:
    assert cores.idle_between(stat(*[0] * 10), stat(*after)) == idle


def test_readings_that_say_nothing() -> None:
    assert cores.idle_between(stat(1, 1, 1, 1), stat(1, 1, 1, 1)) is None
    assert cores.idle_between("", "intr 5") is None


def test_this_machine() -> None:
    assert 0 <= max(cores.idle_cores(), 0) <= (os.cpu_count() or 1)


def test_load_average_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda self: False)
    monkeypatch.setattr(os, "getloadavg", lambda: (float(os.cpu_count() or 1), 0.0, 0.0), raising=False)
    assert cores.threads_for(cores.idle_cores()) == 1
