"""Which traces: filters and pages, as values. `archive.py` turns them into SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from odar.errors import InputError
from odar.store.record import CANCELLED, DIRECT, ERROR, OK
from odar.types import Path

PATHS = (*(path.value for path in Path), DIRECT)
STATUSES = (OK, ERROR, CANCELLED)
MARKS = ("right", "wrong")
UNMARKED = "none"
"""What `feedback` looks for where nobody has said anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What the traces must have in common; None does not care."""

    since: str | None = None
    """Started at or after, ISO 8601; UTC where it does not say."""
    until: str | None = None
    """Started before."""
    path: str | None = None
    """One of `PATHS`."""
    status: str | None = None
    """One of `STATUSES`."""
    degraded: bool | None = None
    model: str | None = None
    key: str | None = None
    """A key's id."""
    min_cost: float | None = None
    max_cost: float | None = None
    """Traces of unknown cost are on neither side of a limit."""
    min_difficulty: float | None = None
    max_difficulty: float | None = None
    """Traces without a difficulty are on neither side of a limit."""
    id: str | None = None
    """The beginning of the trace's id."""
    feedback: str | None = None
    """One of `MARKS`, or `UNMARKED`."""
    text: str | None = None
    """In question or answer, whatever the case; finds only what was stored with content."""


class Cursor(NamedTuple):
    """A place between two traces: after this one.

    >>> Cursor.parse(str(Cursor("2026-11-15T10:00:00.000+00:00", "ab12"))).id
    'ab12'
    """

    started_at: str
    id: str

    def __str__(self) -> str:
        return f"{self.started_at}_{self.id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote."""
        started_at, mark, id_ = text.partition("_")
        if not mark or not id_:
            raise InputError(f"cursor {text!r} is not one that a list of traces has given")
        return cls(started_at, id_)


@dataclass(frozen=True, slots=True)
class Page:
    """Some traces, and where the next ones begin."""

    traces: list[dict[str, Any]]
    next: Cursor | None
    """None after the last page."""
