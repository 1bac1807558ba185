"""The query string of the dashboard's requests: each parameter read, checked, and named where it is wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping

from odar.errors import InputError
from odar.gateway.errors import bad_field
from odar.store.overview import STEPS
from odar.store.record import MARKS, PATHS, STATUSES, UNMARKED, Cursor, Filter

MOST = 200
"""Traces a page, at most."""
_LONGEST = 200
"""Characters of a parameter; nothing that can be looked for is longer."""

Params = Mapping[str, str]


def read_filter(params: Params) -> Filter:
    """Which traces; an empty parameter is one that was left out.

    >>> read_filter({"path": "hard", "degraded": "true", "model": ""})
    Filter(since=None, until=None, path='hard', status=None, degraded=True, model=None, key=None, min_cost=None, \
max_cost=None, min_difficulty=None, max_difficulty=None, id=None, feedback=None, text=None)
    """
    degraded = _choice(params, "degraded", ("true", "false"))
    return Filter(
        since=_text(params, "since"),
        until=_text(params, "until"),
        path=_choice(params, "path", PATHS),
        status=_choice(params, "status", STATUSES),
        degraded=None if degraded is None else degraded == "true",
        model=_text(params, "model"),
        key=_text(params, "key"),
        min_cost=_number(params, "min_cost"),
        max_cost=_number(params, "max_cost"),
        min_difficulty=_number(params, "min_difficulty"),
        max_difficulty=_number(params, "max_difficulty"),
        id=_text(params, "id"),
        feedback=_choice(params, "feedback", (*MARKS, UNMARKED)),
        text=_text(params, "text"),
    )


def read_cursor(params: Params) -> Cursor | None:
    """Where the page begins."""
    text = _text(params, "after")
    try:
        return None if text is None else Cursor.parse(text)
    except InputError as error:
        raise bad_field("after", str(error)) from None


def read_limit(params: Params) -> int:
    """How many traces."""
    text = _text(params, "limit") or "50"
    if text.isascii() and text.isdigit() and 1 <= int(text) <= MOST:
        return int(text)
    raise bad_field("limit", f"{text!r} is not a whole number from 1 to {MOST}")


def read_step(params: Params) -> str:
    """How fine the time series is."""
    return _choice(params, "step", tuple(STEPS)) or "day"


def _text(params: Params, name: str) -> str | None:
    value = params.get(name, "")
    if len(value) > _LONGEST:
        raise bad_field(name, f"has {len(value)} characters; at most {_LONGEST} make sense")
    if "\0" in value:
        raise bad_field(name, "holds a NUL character")
    return value or None


def _choice(params: Params, name: str, allowed: tuple[str, ...]) -> str | None:
    value = _text(params, name)
    if value is None or value in allowed:
        return value
    raise bad_field(name, f"{value!r} is not one of: {', '.join(allowed)}")


def _number(params: Params, name: str) -> float | None:
    value = _text(params, name)
    if value is None:
        return None
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise bad_field(name, f"{value!r} is not a number")
    return number
