"""Reads a request's JSON field by field: each is taken once, checked, and named where it is wrong.

What nobody took is left over, and passes through to the upstream.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TypeVar

from odar.errors import one_line
from odar.formats import deeper_than
from odar.gateway.errors import ApiError, bad_field

T = TypeVar("T")
MAX_DEPTH = 64
"""Deepest nesting of a request's JSON."""
_SHOWN = 40


class Fields:
    """The fields of one object in a request.

    >>> fields = Fields({"n": 2, "top_k": 5})
    >>> fields.integer("n", at_least=1), fields.text("user"), fields.rest()
    (2, None, {'top_k': 5})
    """

    def __init__(self, body: Any, where: str = "") -> None:
        if not isinstance(body, dict):
            raise bad_field(where or "body", f"must be a JSON object, not {_show(body)}")
        self.where = where
        self._left = {name: value for name, value in body.items() if value is not None}

    def any(self, name: str) -> Any:
        """The value, whatever it is; null counts as left out."""
        return self._left.pop(name, None)

    def text(self, name: str) -> str | None:
        """A string."""
        return self._of(name, str, "a string")

    def flag(self, name: str) -> bool | None:
        """True or false."""
        return self._of(name, bool, "true or false")

    def table(self, name: str) -> dict[str, Any] | None:
        """An object."""
        return self._of(name, dict, "an object")

    def items(self, name: str) -> list[Any] | None:
        """A list."""
        return self._of(name, list, "a list")

    def integer(self, name: str, *, at_least: int = 0, at_most: int = 2**53) -> int | None:
        """A whole number."""
        value = self.any(name)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if value is None or (
            isinstance(value, int) and not isinstance(value, bool) and at_least <= value <= at_most
        ):
            return value
        raise self.bad(name, f"{_show(value)} is not a whole number from {at_least} to {at_most}")

    def number(self, name: str, *, at_least: float = 0.0, at_most: float = math.inf) -> float | None:
        """A number."""
        value = self.any(name)
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and at_least <= value <= at_most:
            return value
        bounds = f"at least {at_least:g}" if at_most == math.inf else f"from {at_least:g} to {at_most:g}"
        raise self.bad(name, f"{_show(value)} is not a number {bounds}")

    def choice(self, name: str, allowed: tuple[str, ...]) -> str | None:
        """One of these words."""
        value = self.any(name)
        if value is None:
            return None
        if isinstance(value, str) and value in allowed:
            return value
        raise self.bad(name, f"{_show(value)} is not one of: {', '.join(allowed)}")

    def texts(self, name: str) -> tuple[str, ...] | None:
        """A string or a list of strings."""
        value = self.any(name)
        if value is None:
            return None
        values = [value] if isinstance(value, str) else value
        if isinstance(values, list) and all(isinstance(each, str) for each in values):
            return tuple(values)
        raise self.bad(name, f"{_show(value)} is neither a string nor a list of strings")

    def needed(self, name: str, value: Any) -> Any:
        """The value, which must be there."""
        if value is None:
            raise self.bad(name, "is missing")
        return value

    def rest(self) -> Mapping[str, Any]:
        """What nobody took."""
        return self._left

    def bad(self, name: str, message: str) -> ApiError:
        """A refusal that names this field."""
        return bad_field(f"{self.where}.{name}" if self.where else name, message)

    def _of(self, name: str, kind: type[T], what: str) -> T | None:
        value = self.any(name)
        if value is None or isinstance(value, kind):
            return value
        raise self.bad(name, f"must be {what}, not {_show(value)}")


def read_json(body: bytes, max_depth: int = MAX_DEPTH) -> Any:
    """The JSON in a request body, refused where it is none, too deep, or no valid text.

    >>> read_json(b'{"a": [1]}', max_depth=2)
    {'a': [1]}
    """
    try:
        value = _DECODER.decode(body.decode())
        if b"\\ud" in body or b"\\uD" in body:  # the only way to write half of a surrogate pair
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else one_line(error, 120)
        raise bad_field("body", f"is not valid JSON: {why}") from None
    if body.count(b"{") + body.count(b"[") > max_depth and deeper_than(max_depth, value):
        raise bad_field("body", f"is nested more than {max_depth} deep")
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def _show(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
