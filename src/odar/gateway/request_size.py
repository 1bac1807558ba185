"""How much a request may hold: values, messages, tools, schemas. Checked before anything is built from it.

A limit on bytes alone is not enough: 32 MB may be one picture, which is read in a moment, or 800,000 messages,
which take seconds and a gigabyte.
"""

from __future__ import annotations

import re
from typing import Any

from odar.difficulty.features import token_count
from odar.formats import dump_json
from odar.gateway.errors import ApiError, bad_field
from odar.types import Query

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
