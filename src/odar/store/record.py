"""Values of the store: the record of a request, the filters for finding traces, and pages of results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, Self

from odar.errors import InputError
from odar.types import NO_USAGE, Answer, Call, Candidate, Decision, Path, Query, Spend, Trace

OK, ERROR, CANCELLED = "ok", "error", "cancelled"
DIRECT = "direct"
"""The path of a query that went to one model by name, with no decision."""
NOTHING_SPENT = Spend(0, NO_USAGE, 0.0, 0.0)
_TOKEN_BYTES = 150
"""A token in memory, roughly: a tuple, a short string, a float."""
PATHS = (*(path.value for path in Path), DIRECT)
STATUSES = (OK, ERROR, CANCELLED)
MARKS = ("right", "wrong")
UNMARKED = "none"
"""The value of `feedback` that finds answers without a mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """What became of a query without an answer of ours: it failed, was cancelled, or went straight to one model."""

    id: str
    started_at: str
    """UTC, ISO 8601."""
    profile: str
    status: str = ERROR
    """ok, error or cancelled."""
    error: str | None = None
    path: str | None = None
    """None where it failed before a path was chosen."""
    decision: Decision | None = None
    candidates: tuple[Candidate, ...] = ()
    calls: tuple[Call, ...] = ()
    spend: Spend = NOTHING_SPENT


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of the store."""

    query: Query
    outcome: Answer | Unanswered
    key_id: str | None = None
    """The API key it was asked with, if any."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further figures, JSON-ready; stored whatever `store.content` says, so no text of a user's belongs here."""
    settled: bool = False
    """Whether its key has paid for it already: a key with limits does when the request ends."""

    @property
    def trace(self) -> Trace | Unanswered:
        """What happened: id, decision, candidates, calls and spending."""
        return self.outcome.trace if isinstance(self.outcome, Answer) else self.outcome

    def weight(self) -> int:
        """Bytes it takes while it waits to be written, roughly, without looking at every token."""
        images = sum(len(image.data) for image in self.query.images)
        texts = sum(len(c.text) + _TOKEN_BYTES * len(c.tokens) for c in self.trace.candidates)
        return 2048 + len(self.query.text) + images + texts


def path_of(decision: Decision) -> str:
    """The path that was chosen; where the caller named the model there is no slow one, and nothing was chosen."""
    return decision.path.value if decision.assignment.slow else DIRECT


def utc(moment: str) -> str:
    """A time in the one form in which it sorts as text.

    >>> utc("2026-11-15T12:00:00+02:00"), utc("2026-11-15")
    ('2026-11-15T10:00:00.000+00:00', '2026-11-15T00:00:00.000+00:00')
    """
    parsed = datetime.fromisoformat(moment)
    parsed = parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
    return parsed.isoformat(timespec="milliseconds")


def known(value: float | None) -> float | None:
    """The number, or None for NaN and infinity."""
    return value if value is not None and math.isfinite(value) else None


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


class Page(NamedTuple):
    """Some traces, and where the next ones begin; None after the last page."""

    traces: list[dict[str, Any]]
    next: Cursor | None
