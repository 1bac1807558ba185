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
"""Maximum nesting of JSON and TOML, far more than anybody needs; deeper input is an attack on the parser."""
MAX_NUMBER = sys.float_info.max
"""The largest float; whole numbers in JSON can be larger."""
_VERSIONED_NAME = re.compile(r"(.+?)[-/](\d{1,9})")
_DIGITS_AS_ZEROS = bytes(ord("0") if chr(i).isdecimal() else ord(" ") for i in range(128)).ljust(256)
_TOO_LONG = b"0" * 19
"""Digits of an integer that can have more than 64 bits; orjson would return a float."""


def load_json(text: str | bytes) -> Any:
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
        value = orjson.loads(raw) if is_exact else _load_with_stdlib(text)
    except orjson.JSONDecodeError:
        value = _load_with_stdlib(text)  # NaN, half a surrogate pair, UTF-16; or no JSON at all
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH and deeper_than(MAX_DEPTH, value):
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    return value


def _load_with_stdlib(text: str | bytes) -> Any:
    """Read with the standard library, which accepts more than the JSON standard."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(f"nested more than {MAX_DEPTH} deep") from None


def dump_json(value: Any, errors: Literal["replace", "backslashreplace"] = "replace") -> bytes:
    r"""Return compact JSON in UTF-8. NaN and infinities become null, unknown types their `str`.

    Half a surrogate pair is written as a question mark, or with `errors="backslashreplace"` as its escape.

    >>> dump_json({"a": [1, float("inf")], "é": "\ud800", "big": 2**64})
    b'{"a":[1,null],"\xc3\xa9":"?","big":18446744073709551616}'
    """
    try:
        return orjson.dumps(value)
    except TypeError:  # rare types, which the standard library can write
        text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), default=str)
        return text.encode("utf-8", errors)


def dump_canonical(value: Any) -> str:
    """Return compact JSON with sorted keys: the same text for equal values.

    >>> dump_canonical({"b": 1, "a": "é"})
    '{"a":"é","b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def deeper_than(limit: int, value: Any) -> bool:
    """Return whether objects and lists are nested deeper than the limit."""
    level = [value]
    for _ in range(limit + 1):
        level = [each for each in level if isinstance(each, dict | list)]
        if not level:
            return False
        level = [child for each in level for child in (each.values() if isinstance(each, dict) else each)]
    return True


def check_format(found: object, known: str, origin: str, remedy: str, error: type[OdarError] = InputError) -> None:
    """Raise an error if a file has another format or version; `remedy` is the advice for an older version.

    >>> check_format("odar-panel-1", "odar-panel-2", "p.parquet", "collect it again")
    Traceback (most recent call last):
    odar.errors.InputError: p.parquet has format 'odar-panel-1'; this odar reads 'odar-panel-2': collect it again
    """
    if found == known:
        return
    ours, theirs = _VERSIONED_NAME.fullmatch(known), _VERSIONED_NAME.fullmatch(str(found))
    if ours is None or theirs is None or theirs[1] != ours[1]:
        remedy = "is it the right file?"
    elif int(theirs[2]) > int(ours[2]):
        remedy = "upgrade odar"
    shown = repr(found) if len(repr(found)) <= 60 else repr(found)[:57] + "..."
    raise error(f"{origin} has format {shown}; this odar reads {known!r}: {remedy}")
