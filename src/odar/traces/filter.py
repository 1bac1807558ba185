"""Conditions on stored traces, as a client writes them and as SQL."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from sqlalchemy import ColumnElement, and_, exists, or_

from odar.errors import InputError
from odar.traces.database import documents, traces
from odar.traces.record import to_utc

PathName = Literal["simple", "medium", "hard", "direct"]
Status = Literal["ok", "error", "cancelled"]
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
Mark = Literal["right", "wrong", "none"]
"""The feedback on an answer; "none" for answers without feedback."""
Text = Annotated[str, msgspec.Meta(max_length=200, pattern=r"\A[^\x00]*\Z")]
Number = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]  # neither infinite nor NaN


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on traces; None matches every trace."""

    since: Text | None = None
    """Earliest start: ISO 8601, in UTC unless it has a time zone, or "24h" for 24 hours ago."""
    until: Text | None = None
    """Latest start, exclusive."""
    path: PathName | None = None
    status: Status | None = None
    degraded: bool | None = None
    model: Text | None = None
    key: Text | None = None
    min_cost: Number | None = None
    max_cost: Number | None = None
    """Traces of unknown cost match neither limit."""
    min_difficulty: Number | None = None
    max_difficulty: Number | None = None
    """Traces without a difficulty match neither limit."""
    id: Text | None = None
    """Beginning of the trace's id."""
    feedback: Mark | None = None
    text: Text | None = None
    """Text in question or answer, case-insensitive; matches only traces stored with content."""


def parse_time(text: str) -> str:
    """A user's time as UTC: ISO 8601, or "36h" for 36 hours ago; raises InputError if it is neither."""
    try:
        if match := re.fullmatch(r"(\d+)([mhdw])", text):
            span = timedelta(**{_UNITS[match[2]]: int(match[1])})
            return to_utc((datetime.now(UTC) - span).isoformat())
        return to_utc(text)
    except (ValueError, OverflowError):  # years 1 and 9999 may leave the calendar in UTC
        raise InputError(f"time {text!r} is not ISO 8601 (2026-11-15T10:30), nor an age (24h)") from None


def conditions(wanted: Filter | None) -> list[ColumnElement[bool]]:
    """The filter as SQL conditions; None matches every trace."""
    c = traces.c
    tests: dict[str, Callable[[Any], ColumnElement[bool]]] = {
        "since": lambda value: c.started_at >= parse_time(value),
        "until": lambda value: c.started_at < parse_time(value),
        "path": lambda value: c.path == value,
        "status": lambda value: c.status == value,
        "key": lambda value: c.key_id == value,
        "degraded": lambda value: c.degraded.is_(value),
        "model": lambda value: c.models.contains(f",{value},", autoescape=True),
        "min_cost": lambda value: c.cost_usd >= value,
        "max_cost": lambda value: c.cost_usd <= value,
        "min_difficulty": lambda value: c.difficulty >= value,
        "max_difficulty": lambda value: c.difficulty <= value,
        "id": has_prefix,
        "feedback": lambda value: c.correct.is_(None if value == "none" else value == "right"),
        "text": _contains_text,
    }
    return [test(value) for name, test in tests.items() if (value := getattr(wanted, name, None)) is not None]


def has_prefix(prefix: str) -> ColumnElement[bool]:
    """A condition on the id, as a range: it uses the index, and LIKE would read every id."""
    return and_(traces.c.id >= prefix, traces.c.id < prefix + "\U0010ffff")


def _contains_text(text: str) -> ColumnElement[bool]:
    columns = (documents.c.question, documents.c.answer)
    found = or_(*(column.icontains(text, autoescape=True) for column in columns))
    return exists().where(documents.c.trace_id == traces.c.id, found).correlate(traces)
