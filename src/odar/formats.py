"""What every file and body we read has to pass: JSON that is not nested absurdly deep, of a version we know."""

from __future__ import annotations

import json
import re
from typing import Any

from odar.errors import InputError, OdarError

DEEPEST = 200
"""Nothing that odar, its files or its upstreams write comes near it; what does is meant to break a parser."""
_NUMBERED = re.compile(r"(.+?)[-/](\d{1,9})")


def load_json(text: str | bytes, deepest: int = DEEPEST) -> Any:
    """The value; also one that can be written again, and walked by a function that calls itself.

    Raises:
        ValueError: it is no JSON, or nested too deeply, which the standard library would call a RecursionError.

    >>> load_json('{"a": [1, 2]}')
    {'a': [1, 2]}
    >>> load_json("[" * 300 + "]" * 300)
    Traceback (most recent call last):
    ValueError: nested more than 200 deep
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"nested more than {deepest} deep") from None
    brackets = text.count("{") + text.count("[") if isinstance(text, str) else text.count(b"{") + text.count(b"[")
    if brackets > deepest and deeper_than(deepest, value):
        raise ValueError(f"nested more than {deepest} deep")
    return value


def deeper_than(limit: int, value: Any) -> bool:
    """Whether objects and lists lie more than this many deep in each other.

    >>> deeper_than(1, [1, 2]), deeper_than(1, [[1]])
    (False, True)
    """
    level = [value]
    for _ in range(limit + 1):
        level = [each for each in level if isinstance(each, dict | list)]
        if not level:
            return False
        level = [child for each in level for child in (each.values() if isinstance(each, dict) else each)]
    return True


def check_format(found: object, known: str, origin: str, remedy: str, error: type[OdarError] = InputError) -> None:
    """Refuse a file of another version: older, newer, or of no kind of ours at all.

    Args:
        found: what the file says it is.
        known: the one version that is read, such as `odar-panel-2`.
        origin: the file, for the message.
        remedy: what to do about an older one.
        error: what to raise.

    >>> check_format("odar-panel-1", "odar-panel-2", "p.parquet", "collect it again")
    Traceback (most recent call last):
    odar.errors.InputError: p.parquet has format 'odar-panel-1'; this odar reads 'odar-panel-2': collect it again
    >>> check_format("odar-panel-3", "odar-panel-2", "p.parquet", "collect it again")
    Traceback (most recent call last):
    odar.errors.InputError: p.parquet has format 'odar-panel-3'; this odar reads 'odar-panel-2': upgrade odar
    """
    if found == known:
        return
    ours, theirs = _NUMBERED.fullmatch(known), _NUMBERED.fullmatch(str(found))
    if ours is None or theirs is None or theirs[1] != ours[1]:
        remedy = "is it the right file?"
    elif int(theirs[2]) > int(ours[2]):
        remedy = "upgrade odar"
    shown = repr(found) if len(repr(found)) <= 60 else repr(found)[:57] + "..."
    raise error(f"{origin} has format {shown}; this odar reads {known!r}: {remedy}")
