"""JSON: fast reading and writing, with a limit on depth, and checks of format versions."""

from __future__ import annotations

import json
import math
import re
import sys
from typing import Any, Literal

import orjson

from odar.errors import InputError, OdarError

MAX_DEPTH = 200
"""Far more than odar, its files or its upstreams need; deeper JSON is an attack on the parser."""
MAX_NUMBER = sys.float_info.max
"""Whole numbers in JSON can be larger than any float."""
_NUMBERED = re.compile(r"(.+?)[-/](\d{1,9})")
_DIGITS_AS_ZEROS = bytes(ord("0") if chr(i).isdecimal() else ord(" ") for i in range(128)).ljust(256)
_TOO_LONG = b"0" * 19
"""An integer of 19 digits can have more than 64 bits; orjson would return a float."""


def load_json(text: str | bytes, deepest: int = MAX_DEPTH) -> Any:
    """Read JSON with a limited depth, so that recursive functions can process the value.

    Raises:
        ValueError: it is not JSON, or nested too deeply.

    >>> load_json('{"a": [1, 2]}')
    {'a': [1, 2]}
    >>> load_json("[" * 300 + "]" * 300)
    Traceback (most recent call last):
    ValueError: nested more than 200 deep
    """
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    try:
        is_exact = _TOO_LONG not in raw.translate(_DIGITS_AS_ZEROS)
        value = orjson.loads(raw) if is_exact else _load_slowly(text, deepest)
    except orjson.JSONDecodeError:
        value = _load_slowly(text, deepest)  # NaN, half a surrogate pair, UTF-16; or no JSON at all
    if raw.count(b"{") + raw.count(b"[") > deepest and deeper_than(deepest, value):
        raise ValueError(f"nested more than {deepest} deep")
    return value


def _load_slowly(text: str | bytes, deepest: int) -> Any:
    """Read with the standard library, which accepts more than the JSON standard."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(f"nested more than {deepest} deep") from None


def dump_json(value: Any, odd: Literal["replace", "backslashreplace"] = "replace") -> bytes:
    r"""Compact JSON in UTF-8. NaN and infinities become null, unknown types their `str`.

    `odd` says how to write half a surrogate pair: as a question mark, or as its escape.

    >>> dump_json({"a": [1, float("inf")], "é": "\ud800", "big": 2**64})
    b'{"a":[1,null],"\xc3\xa9":"?","big":18446744073709551616}'
    """
    try:
        return orjson.dumps(value)
    except TypeError:  # rare types, which the standard library can write
        text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), default=str)
        return text.encode("utf-8", odd)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def deeper_than(limit: int, value: Any) -> bool:
    """Return whether objects and lists lie more than this many deep in each other."""
    level = [value]
    for _ in range(limit + 1):
        level = [each for each in level if isinstance(each, dict | list)]
        if not level:
            return False
        level = [child for each in level for child in (each.values() if isinstance(each, dict) else each)]
    return True


def check_format(found: object, known: str, origin: str, remedy: str, error: type[OdarError] = InputError) -> None:
    """Raise an error if a file has another version or another format; `remedy` says what to do about an older one.

    >>> check_format("odar-panel-1", "odar-panel-2", "p.parquet", "collect it again")
    Traceback (most recent call last):
    odar.errors.InputError: p.parquet has format 'odar-panel-1'; this odar reads 'odar-panel-2': collect it again
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
