"""Responses of model servers, read at once or as a stream: each becomes a `Reply` or a `ProviderError`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

import orjson

from odar.background import run_by_size
from odar.errors import ProviderProtocolError, ProviderUnreachable
from odar.formats import MAX_STDLIB_BYTES, dump_json, load_json
from odar.providers.base import Delta, OnDelta, Reply
from odar.providers.connection import Connection
from odar.providers.errors import MAX_ERROR_BYTES, ErrorFactory

_MAX_COUNT = 10**12
"""Larger counts of tokens are invalid; they would not fit the store."""
_EVENTS_AT_ONCE = 50
"""Number of events of a stream after which other requests go on; they take about a millisecond."""
_STREAM_TAIL_S = 0.1
"""Maximum wait after [DONE] for the end of the body, so that the connection can be reused."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
T = TypeVar("T")
Payload = Mapping[str, Any]


class SseReader:
    r"""Splits a stream of bytes into the data of server-sent events. Lines end in LF or CRLF.

    `done` becomes True at OpenAI's closing `[DONE]`; it and everything after it are ignored.

    >>> reader = SseReader()
    >>> reader.feed(b": a comment\r\ndata: {\"a\":\r\nda")
    []
    >>> reader.feed(b"ta: 1}\r\n\r\ndata: [DONE]\n\n"), reader.done
    ([b'{"a":\n1}'], True)
    """

    def __init__(self) -> None:
        self.done = False
        self._partial = bytearray()
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that this chunk completes."""
        self._partial += chunk
        if b"\n" not in chunk:
            return []
        *lines, rest = bytes(self._partial).split(b"\n")
        self._partial = bytearray(rest)
        events = []
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                data, self._data = b"\n".join(self._data), []
                self.done = self.done or data == b"[DONE]"
                if not self.done:
                    events.append(data)
        return events


class Collector(Protocol):
    """Assembles a streamed answer."""

    finished: bool
    """Whether the answer is complete according to the protocol."""

    def feed(self, payload: Payload) -> Delta:
        """Add one event, and return what it adds to the answer."""
        ...

    def reply(self) -> Reply: ...


class Response:
    """A response after its head; its body can be read once."""

    def __init__(self, connection: Connection, errors: ErrorFactory) -> None:
        self.content_type = connection.content_type
        self.passed_on = False
        """Whether the caller got a part of the answer already."""
        self._connection = connection
        self._errors = errors

    async def check_head(self) -> None:
        """Raise the error of a response that is not a success."""
        status = self._connection.status
        headers = self._connection.headers
        # A redirect is an error too: following it would send the key to another host.
        if not 200 <= status < 300:
            body = await self._connection.read_all(MAX_ERROR_BYTES)
            raise self._errors.from_status(status, headers, _decode(body))
        if encoding := headers.get("content-encoding", "").lower().removeprefix("identity"):
            reason = f"the answer is compressed ({encoding}) although the request forbids it; check base_url"
            raise self._errors.create(ProviderProtocolError, reason, retryable=False)

    async def read(self, interpret: Callable[[Payload], T], unread: str = "") -> T:
        """What `interpret` makes of the JSON of the body, without its field `unread`."""
        body = await self._connection.read_all()
        return await run_by_size(len(body), partial(self._parse, interpret, body, unread))

    async def stream(self, collector: Collector, on_delta: OnDelta) -> Reply:
        reader = SseReader()
        while not reader.done and (chunk := await self._connection.read()):
            for number, event in enumerate(reader.feed(chunk), start=1):
                if number % _EVENTS_AT_ONCE == 0:
                    await asyncio.sleep(0)  # let other requests run
                piece = await run_by_size(len(event), partial(self._parse, collector.feed, event))
                if piece.text or piece.tool_calls or piece.wire or piece.thinking:
                    self.passed_on = True
                    on_delta(piece)
        if not (reader.done or collector.finished):
            raise self._errors.create(ProviderUnreachable, "the stream broke off before the answer was complete")
        if reader.done:
            with suppress(TimeoutError):
                async with asyncio.timeout(_STREAM_TAIL_S):
                    await self._connection.read_all()
        return self._checked(collector.reply)

    def _parse(self, interpret: Callable[[Payload], T], body: bytes, unread: str = "") -> T:
        payload = _parse_json(body, unread)
        if not isinstance(payload, dict):
            is_json = "json" in self.content_type or "event-stream" in self.content_type
            remedy = "" if is_json else f" but {self.content_type or 'of no known type'}, check base_url"
            reason = f"the answer is not a JSON object{remedy}"
            raise self._errors.create(ProviderProtocolError, reason, body=_decode(body), retryable=is_json)
        if payload.get("error"):
            raise self._errors.from_payload(payload, quote=len(body) <= MAX_ERROR_BYTES)
        return self._checked(lambda: interpret(payload), body)

    def _checked(self, read: Callable[[], T], body: bytes | None = None) -> T:
        """What `read` returns; ProviderProtocolError if the answer is not as it expects."""
        try:
            return read()
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as exc:
            reason = f"the answer has an unexpected structure: {type(exc).__name__}: {exc}"
        raise self._errors.create(ProviderProtocolError, reason, body=None if body is None else _decode(body))


def _parse_json(body: bytes, unread: str = "") -> Any:
    """The parsed JSON, or None if it is invalid; characters that cannot be encoded are replaced."""
    try:
        try:
            payload = load_json(body, unread)
        except UnicodeDecodeError:
            payload = load_json(_decode(body), unread)
        if _SURROGATE.search(body):
            try:
                orjson.dumps(payload)
            except TypeError:  # half of a surrogate pair
                return load_json(dump_json(load_json(body))) if len(body) <= MAX_STDLIB_BYTES else None
        return payload
    except ValueError:
        return None


def _decode(body: bytes) -> str:
    return body.decode("utf-8", errors="replace")


def count_or_none(value: Any) -> int | None:
    """A count or an index as a server reports it, or None if it is missing or invalid.

    >>> count_or_none(7), count_or_none(None), count_or_none(-1), count_or_none("7"), count_or_none(10**30)
    (7, None, None, None, None)
    """
    return value if type(value) is int and 0 <= value <= _MAX_COUNT else None


def str_or_empty(value: Any) -> str:
    return value if isinstance(value, str) else ""
