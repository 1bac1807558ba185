"""How much a request may hold: values, messages, tools, schemas. Checked before anything is built from it.

A limit on bytes alone is not enough: 32 MB may be one picture, which is read in a moment, or 800,000 messages,
which take seconds and a gigabyte.
"""

from __future__ import annotations

import re
from typing import Any

from odar.formats import dump_json
from odar.gateway.errors import ApiError, bad_field
from odar.settings import GatewaySettings

_TOOLS_TOGETHER = 8
"""The definitions of all tools together may be so many times as large as one schema."""
_VALUE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{\[,]', re.DOTALL)
"""A string, whatever is in it, or the beginning of an object, a list or their next value."""
_STRING = ord('"')


def check_values(body: bytes, most: int) -> None:
    """Refuse JSON with more values than this, without parsing it.

    >>> check_values(b'{"a": [1, 2, 3]}', most=6)
    >>> check_values(b'{"a": ", , , ,"}', most=2)
    >>> check_values(b'{"a": [1, 2, 3]}', most=2)
    Traceback (most recent call last):
    odar.gateway.errors.ApiError: body: holds more than 2 values (gateway.max_values)
    """
    if body.count(b"{") + body.count(b"[") + body.count(b",") <= most:
        return
    count = 0
    for found in _VALUE.finditer(body):  # in a thread: it gives way to the event loop, as a parser would not
        count += body[found.start()] != _STRING
        if count > most:
            raise bad_field("body", f"holds more than {most} values (gateway.max_values)")


def check_parts(body: Any, gateway: GatewaySettings) -> None:
    """Refuse a request with too many messages or tools, or too large a schema; the same for every protocol."""
    if not isinstance(body, dict):
        return
    for name in ("messages", "input"):
        if isinstance(turns := body.get(name), list):
            contents = (turn.get("content") for turn in turns if isinstance(turn, dict))
            count = len(turns) + sum(len(content) for content in contents if isinstance(content, list))
            if count > gateway.max_messages:
                raise bad_field(
                    name, f"{count} messages and parts are more than gateway.max_messages = {gateway.max_messages}"
                )
    largest = int(gateway.max_schema_kb * 1000)
    if isinstance(tools := body.get("tools"), list):
        if len(tools) > gateway.max_tools:
            raise bad_field("tools", f"{len(tools)} are more than gateway.max_tools = {gateway.max_tools}")
        sizes = [len(dump_json(tool)) for tool in tools]
        if max(sizes, default=0) > largest:
            raise _too_large(f"tools[{sizes.index(max(sizes))}]", max(sizes), gateway)
        if sum(sizes) > _TOOLS_TOGETHER * largest:
            raise _too_large("tools", sum(sizes), gateway)
    for name in ("response_format", "text", "output_config"):
        if isinstance(form := body.get(name), dict) and (size := len(dump_json(form))) > largest:
            raise _too_large(name, size, gateway)


def _too_large(name: str, size: int, gateway: GatewaySettings) -> ApiError:
    return bad_field(
        name, f"{size / 1000:.0f} kB are more than gateway.max_schema_kb = {gateway.max_schema_kb:g} allows"
    )
