"""A request's JSON: how much it may hold, and its fields, each taken once, checked, and named where it is wrong.

What no reader took is left over, and passes through to the upstream. Sizes are checked before anything is built. A
limit on bytes alone is not enough: 32 MB may be one picture, which is read in a moment, or 800,000 messages, which
take seconds and a gigabyte.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from odar.difficulty.features import token_count
from odar.errors import one_line
from odar.formats import deeper_than, dump_json
from odar.gateway.errors import ApiError, bad_field
from odar.types import Query

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


MAX_VALUES = 100_000
"""Values in a request's JSON: objects, lists and what is in them."""
MAX_MESSAGES = 5_000
"""Messages of a request, and parts of their contents, together."""
MAX_TOOLS = 512
MAX_SCHEMA_KB = 128
"""Largest response schema or tool."""
_TOOLS_TOGETHER = 8
"""The definitions of all tools together may be so many times as large as one schema."""
_VALUE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{\[,]', re.DOTALL)
"""A string, whatever is in it, or the beginning of an object, a list or their next value."""
_STRING = ord('"')
_COUNTED = 100_000
"""Characters of a text whose tokens are counted; the rest is taken to be like them."""
_TURN_TOKENS = 4
_IMAGE_TOKENS = 1_500


def check_values(body: bytes, most: int | None = None) -> None:
    """Refuse JSON with more values than this, without parsing it.

    >>> check_values(b'{"a": [1, 2, 3]}', most=6)
    >>> check_values(b'{"a": ", , , ,"}', most=2)
    >>> check_values(b'{"a": [1, 2, 3]}', most=2)
    Traceback (most recent call last):
    odar.gateway.errors.ApiError: body: holds more than 2 values
    """
    most = MAX_VALUES if most is None else most
    if body.count(b"{") + body.count(b"[") + body.count(b",") <= most:
        return
    count = 0
    for found in _VALUE.finditer(body):  # in a thread: it gives way to the event loop, as a parser would not
        count += body[found.start()] != _STRING
        if count > most:
            raise bad_field("body", f"holds more than {most} values")


def check_parts(body: Any) -> None:
    """Refuse a request with too many messages or tools, or too large a schema; the same for every protocol."""
    if not isinstance(body, dict):
        return
    for name in ("messages", "input"):
        if isinstance(turns := body.get(name), list):
            contents = (turn.get("content") for turn in turns if isinstance(turn, dict))
            count = len(turns) + sum(len(content) for content in contents if isinstance(content, list))
            if count > MAX_MESSAGES:
                raise bad_field(
                    name, f"{count} messages and parts are more than the {MAX_MESSAGES} that a request can hold"
                )
    largest = MAX_SCHEMA_KB * 1000
    if isinstance(tools := body.get("tools"), list):
        if len(tools) > MAX_TOOLS:
            raise bad_field("tools", f"{len(tools)} are more than the {MAX_TOOLS} that a request can hold")
        sizes = [len(dump_json(tool)) for tool in tools]
        if max(sizes, default=0) > largest:
            raise _too_large(f"tools[{sizes.index(max(sizes))}]", max(sizes))
        if sum(sizes) > _TOOLS_TOGETHER * largest:
            raise _too_large("tools", sum(sizes))
    for name in ("response_format", "text", "output_config"):
        if isinstance(form := body.get(name), dict) and (size := len(dump_json(form))) > largest:
            raise _too_large(name, size)


def _too_large(name: str, size: int) -> ApiError:
    return bad_field(name, f"{size / 1000:.0f} kB are more than the {MAX_SCHEMA_KB} kB that a schema can have")


def estimated_tokens(query: Query) -> int:
    """The tokens of a conversation with its tools, counted with cl100k_base; a model's own count differs somewhat.

    >>> estimated_tokens(Query("Is Paris the capital of France?"))
    11
    """
    turns = query.messages
    texts = [turn.text for turn in turns] + [str(call) for turn in turns for call in turn.tool_calls]
    for tool in query.options.tools:
        texts.append(f"{tool.name} {tool.description} {dump_json(dict(tool.parameters or {})).decode()}")
    counted = sum(map(_tokens, texts))
    return round(counted) + _TURN_TOKENS * len(turns) + _IMAGE_TOKENS * len(query.images)


def _tokens(text: str) -> float:
    """A long text is counted at its beginning."""
    return token_count(text[:_COUNTED]) * max(1.0, len(text) / _COUNTED)
