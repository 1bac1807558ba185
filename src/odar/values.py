"""One value of a setting: read, held against its type and bounds, and shown where it is wrong."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import tomllib
import types
import typing
from collections.abc import Mapping
from typing import Any

from odar.errors import SettingsError
from odar.secrets import is_secret, masked

KeyPath = tuple[str, ...]


def key_name(path: KeyPath) -> str:
    """A key as a user writes it in odar.toml.

    >>> key_name(("models", "gpt-4.1", "images"))
    'models."gpt-4.1".images'
    """
    plain = re.compile(r"[A-Za-z0-9_-]+")
    return ".".join(p if plain.fullmatch(p) else json.dumps(p, ensure_ascii=False) for p in path)


def parse(text: str, kind: Any) -> Any:
    """A string from the environment or the command line, read as TOML would read it; plain text if it cannot."""
    if kind is str:
        return text
    if typing.get_origin(kind) is tuple and not text.startswith("["):
        return [part for part in text.split(",") if part]
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def coerce(value: Any, kind: Any, field: dataclasses.Field[Any], path: KeyPath, origin: str) -> Any:
    """The value as the field's type has it.

    Raises:
        SettingsError: it is of another type, or out of bounds; names the key, the value and `origin`.
    """
    if typing.get_origin(kind) is types.UnionType:
        if value is None or value in ("none", ""):
            return None
        kind = next(option for option in typing.get_args(kind) if option is not types.NoneType)
    good: Any = None
    if kind is bool and isinstance(value, bool):
        good = value
    elif kind is float:
        good = _number(value)
    elif (kind is int and _number(value) is not None and isinstance(value, int)) or (
        kind is str and isinstance(value, str)
    ):
        good = value
    elif typing.get_origin(kind) is tuple and isinstance(value, list | tuple):
        good = tuple(value) if all(isinstance(part, str) for part in value) else None
    elif typing.get_origin(kind) in (Mapping, typing.get_origin(Mapping[str, Any])) and isinstance(value, Mapping):
        good = _table(dict(value), kind)
    if good is None:
        raise SettingsError(f"{key_name(path)} = {show(value)} in {origin} must be {_describe(kind)}")
    for each in good.values() if isinstance(good, dict) else (good,):
        _check_bounds(each, field, path, origin)
    return good


def _table(value: dict[Any, Any], kind: Any) -> dict[Any, Any] | None:
    """The table, with numbers as floats where it must hold numbers; None where it holds something else."""
    if typing.get_args(kind)[1] is not float:
        return value
    numbers = {key: _number(each) for key, each in value.items()}
    return None if None in numbers.values() else numbers


def _number(value: Any) -> float | None:
    """The number as a float; None for what is none, and for whole ones beyond 64 bits, which TOML does not have."""
    whole = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    return float(value) if whole or isinstance(value, float) else None


def _check_bounds(value: Any, field: dataclasses.Field[Any], path: KeyPath, origin: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    ge, gt, le = (field.metadata[name] for name in ("ge", "gt", "le"))
    # Written so that NaN, which compares false with everything, is refused.
    if not (ge <= value <= le and (value > gt or gt == -math.inf)):
        low = f"above {gt:g}" if gt > -math.inf else f"at least {ge:g}"
        bounds = low if le == math.inf else f"{low} and at most {le:g}"
        nearest = le if value > le else ge if value < ge else None
        hint = f"; the nearest valid value is {nearest:g}" if nearest is not None else ""
        raise SettingsError(f"{key_name(path)} = {value} in {origin} must be {bounds}{hint}")


def _describe(kind: Any) -> str:
    if typing.get_origin(kind) is tuple:
        return "a list of strings"
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
    return names.get(kind, "a table")


def show(value: Any, name: str = "") -> str:
    """A value for an error message: short, and hidden where its name says that it is a secret."""
    if is_secret(name):
        return "(hidden)"
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        text = f"a {type(value).__name__}"
    text = masked(text)
    return text if len(text) <= 60 else text[:57] + "..."
