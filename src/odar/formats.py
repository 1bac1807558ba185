"""JSON and TOML: fast reading and writing, with a limit on depth, and checks of format versions."""

from __future__ import annotations

import json
import math
import re
import sys
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal

import msgspec
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
_PIECE_BYTES = 256 * 2**10
MAX_STDLIB_BYTES = 8 * 2**20
"""Largest JSON for the standard library, which is slow but accepts more than the JSON standard."""
_OBJECT = re.compile(rb"[ \t\r\n]{0,99}\{")
_LIST = re.compile(rb"[ \t\r\n]{0,99}\[")
_LIST_OF_CONTAINERS = re.compile(rb"[ \t\r\n]{0,99}\[[ \t\r\n]{0,99}[\[{]")
_OBJECT_PIECES = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST_PIECES = msgspec.json.Decoder(list[msgspec.Raw])


def load_json(text: str | bytes, unread: str = "") -> Any:
    """Read JSON with a limited depth, so that recursive functions can process the value.

    The field `unread` of an object is not parsed, if it is a list, only kept for `dump_json`.

    Raises:
        ValueError: it is not JSON, or nested too deeply.

    >>> load_json('{"a": [1, 2]}')
    {'a': [1, 2]}
    >>> load_json("[" * 300 + "]" * 300)
    Traceback (most recent call last):
    ValueError: nested more than 200 deep
    """
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if json_deeper_than(MAX_DEPTH, raw):
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    if unread and _OBJECT.match(raw):
        with suppress(msgspec.MsgspecError):
            pieces = {name: bytes(piece) for name, piece in _OBJECT_PIECES.decode(raw).items()}
            kept = {
                name: orjson.Fragment(piece)
                for name, piece in pieces.items()
                if name == unread and piece[:1] == b"["
            }
            return {name: kept.get(name) or _load(piece) for name, piece in pieces.items()}
    return _load(raw)


def _load(raw: bytes) -> Any:
    """Read JSON, a large one in pieces: a parser stops all other threads until it is done."""
    if len(raw) > _PIECE_BYTES:
        with suppress(msgspec.MsgspecError):
            if _OBJECT.match(raw):
                return {name: _load(bytes(piece)) for name, piece in _OBJECT_PIECES.decode(raw).items()}
            if _LIST_OF_CONTAINERS.match(raw):
                return [_load(bytes(piece)) for piece in _LIST_PIECES.decode(raw)]
            if _LIST.match(raw) and raw.count(b"[") == 1 and not (b'"' in raw or b"{" in raw):
                return _load_numbers(raw)
    return _load_whole(raw)


def _load_whole(raw: bytes) -> Any:
    try:
        if _TOO_LONG not in raw.translate(_DIGITS_AS_ZEROS):
            return orjson.loads(raw)
    except orjson.JSONDecodeError:  # NaN, half a surrogate pair, UTF-16; or no JSON at all
        if len(raw) > MAX_STDLIB_BYTES:
            raise
    return json.loads(raw)


def _load_numbers(raw: bytes) -> list[Any]:
    """Read a list without texts, lists and objects, in pieces that begin after a comma."""
    start, end = raw.index(b"[") + 1, raw.rindex(b"]")
    if raw[end + 1 :].strip():
        raise ValueError("text after the end of a list")
    found: list[Any] = []
    while start <= end:
        comma = raw.find(b",", start + _PIECE_BYTES, end)
        stop = end if comma < 0 else comma
        piece = _load_whole(b"[%b]" % raw[start:stop])
        if not piece:
            raise ValueError("a comma before the end of a list")
        found += piece
        start = stop + 1
    return found


def dump_json(value: Any, errors: Literal["replace", "backslashreplace"] = "replace") -> bytes:
    r"""Compact JSON in UTF-8. NaN and infinities become null, unknown types their `str`.

    Half a surrogate pair is written as a question mark, or with `errors="backslashreplace"` as its escape.

    >>> dump_json({"a": [1, float("inf")], "é": "\ud800", "big": 2**64})
    b'{"a":[1,null],"\xc3\xa9":"?","big":18446744073709551616}'
    """
    try:
        return orjson.dumps(value)
    except TypeError:  # rare types, which the standard library can write
        text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), default=str)
        return text.encode("utf-8", errors)


def json_size(value: Any, limit: int) -> int:
    """About how many bytes a value has as JSON; a number above the limit if it has more.

    >>> json_size({"a": "x" * 100}, limit=1000), json_size(["x" * 900] * 1000, limit=1000)
    (117, 1824)
    """
    size = 0
    todo = [value]
    while todo and size <= limit:
        each = todo.pop()
        size += 8
        if isinstance(each, str):
            size += len(each)
        elif isinstance(each, dict):
            size += sum(map(len, each))
            todo.extend(each.values())
        elif isinstance(each, list | tuple):
            todo.extend(each)
    return size


def dump_canonical(value: Any) -> str:
    """Compact JSON with sorted keys: the same text for equal values.

    >>> dump_canonical({"b": 1, "a": "é"})
    '{"a":"é","b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def json_line(value: Mapping[str, Any]) -> bytes:
    """A line of a JSON Lines file; half a surrogate pair can be read back."""
    try:
        return json.dumps(value, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(value).encode() + b"\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_deeper_than(limit: int, raw: bytes) -> bool:
    r"""Whether objects and lists in JSON are nested deeper than the limit, without parsing it.

    >>> [json_deeper_than(limit, b'{"a": ["}}\\"[[[[", {"b": 1}]}') for limit in (2, 3)]
    [True, False]
    """
    if raw.count(b"{") + raw.count(b"[") <= limit:
        return False
    import numpy as np  # only here: much JSON is read before anything is computed

    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"")  # every quotation mark now begins or ends a string
    steps = np.zeros(256, dtype=np.int8)  # by byte
    steps[list(b"{[")] = 1
    steps[list(b"}]")] = -1
    depth = 0
    inside = np.uint8(0)
    for start in range(0, len(plain), _PIECE_BYTES):
        piece = np.frombuffer(plain[start : start + _PIECE_BYTES], dtype=np.uint8)
        in_string = (np.cumsum(piece == ord('"'), dtype=np.uint8) + inside) & 1  # (bytes,)
        depths = depth + np.cumsum(np.where(in_string, 0, steps[piece]), dtype=np.int64)  # (bytes,)
        if depths.max() > limit:
            return True
        depth = int(depths[-1])
        inside = in_string[-1]
    return False


def load_toml(text: str) -> dict[str, Any]:
    """Read TOML with a limited depth, as `load_json` does.

    Raises:
        ValueError: it is not TOML, or nested too deeply.
    """
    try:
        tree = tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    depth = 0
    level: list[Any] = [tree]
    while level:
        depth += 1
        if depth > MAX_DEPTH:  # a.a.a.a… parses, but recursive functions fail on it
            raise ValueError("nested too deeply")
        children = [child for each in level for child in (each.values() if isinstance(each, dict) else each)]
        level = [child for child in children if isinstance(child, dict | list)]
    return tree


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
