"""An answer over HTTP, read whole or as a stream, that turns into a `Reply` or a `ProviderError`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from odar.errors import ProviderProtocolError, ProviderUnreachable
from odar.formats import load_json
from odar.providers.base import Delta, OnDelta, Reply
from odar.providers.connection import Connection
from odar.providers.failures import Failures

MAX_BODY_BYTES = 64 * 2**20
"""No answer of a language model is larger; something that is, is not one."""
_MOST_TOKENS = 10**12
"""No bill of one answer is longer; what is would not even fit the store."""
_STREAM_TAIL_S = 0.1
"""How long to wait after [DONE] for the end of the body, without which the connection is lost for reuse."""
T = TypeVar("T")
Payload = Mapping[str, Any]


class SseReader:
    r"""Turns chunks of bytes, cut anywhere, into the data of server-sent events. Lines end in LF or CRLF.

    `done` becomes True at OpenAI's closing `[DONE]`, which is not an event, and neither is what follows it.

    >>> reader = SseReader()
    >>> reader.feed(b": a comment\r\ndata: {\"a\":\r\nda")
    []
    >>> reader.feed(b"ta: 1}\r\n\r\ndata: [DONE]\n\n"), reader.done
    (['{"a":\n1}'], True)
    """

    def __init__(self) -> None:
        self.done = False
        self._partial = bytearray()
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[str]:
        """The data of the events that this chunk completes."""
        self._partial += chunk
        if b"\n" not in chunk:
            return []
        *lines, rest = bytes(self._partial).split(b"\n")
        self._partial = bytearray(rest)
        events: list[str] = []
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                # Whole lines only reach this point, so no character is ever cut in two.
                data, self._data = b"\n".join(self._data).decode("utf-8", errors="replace"), []
                self.done = self.done or data == "[DONE]"
                events += [] if self.done else [data]
        return events


class Collector(Protocol):
    """Puts a streamed answer together."""

    finished: bool
    """Whether the answer is whole, going by what the protocol says."""

    def feed(self, payload: Payload) -> Delta:
        """Take one event in; what it adds to the answer."""
        ...

    def reply(self) -> Reply:
        """The whole answer."""
        ...


class Response:
    """An answer with a good status, to be read once."""

    def __init__(self, answer: Connection, failures: Failures, prompts: Sequence[str]) -> None:
        self.content_type = answer.content_type
        self._answer = answer
        self._failures = failures
        self._prompts = prompts
        self._received = 0

    async def whole(self, interpret: Callable[[Payload], T]) -> T:
        """Read the body to its end and interpret the JSON in it."""
        body = bytearray()
        while chunk := await self._chunk():
            body += chunk
        return self._parse(interpret, bytes(body))

    async def stream(self, collector: Collector, on_delta: OnDelta) -> Reply:
        """Read server-sent events and hand over the text as it comes."""
        reader = SseReader()
        while not reader.done and (chunk := await self._chunk()):
            for event in reader.feed(chunk):
                piece = self._parse(collector.feed, event)
                if piece.text or piece.calls or piece.wire or piece.thinking:
                    on_delta(piece)
        if not (reader.done or collector.finished):
            raise self._failures.error(ProviderUnreachable, "the stream broke off before the answer was whole")
        if reader.done:
            with suppress(TimeoutError):
                async with asyncio.timeout(_STREAM_TAIL_S):
                    while await self._chunk():
                        pass
        return self._understand(collector.reply)

    async def _chunk(self) -> bytes:
        chunk = await self._answer.read()
        self._received += len(chunk)
        if self._received > MAX_BODY_BYTES:
            why = f"the answer is larger than {MAX_BODY_BYTES} bytes"
            raise self._failures.error(ProviderProtocolError, why, retryable=False)
        return chunk

    def _parse(self, interpret: Callable[[Payload], T], body: str | bytes) -> T:
        payload = _read(body)
        if not isinstance(payload, dict):
            is_json = "json" in self.content_type or "event-stream" in self.content_type
            remedy = "" if is_json else f" but {self.content_type or 'of no known type'}, check base_url"
            why = f"the answer is no JSON object{remedy}"
            raise self._failures.error(ProviderProtocolError, why, body=_text(body), retryable=is_json)
        if payload.get("error"):
            raise self._failures.from_payload(payload, self._prompts)
        return self._understand(lambda: interpret(payload), body)

    def _understand(self, interpret: Callable[[], T], body: str | bytes | None = None) -> T:
        try:
            return interpret()
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as exc:
            why = f"the answer does not have the shape it should: {type(exc).__name__}: {exc}"
        raise self._failures.error(ProviderProtocolError, why, body=None if body is None else _text(body))


def _read(body: str | bytes) -> Any:
    """The JSON in it, None where there is none; what cannot be shown, stored or sent on is replaced."""
    try:
        try:
            payload = load_json(body)
        except UnicodeDecodeError:
            payload = load_json(_text(body))
        text = _text(body)
        if "\\u" in text and "\\ud" in text.lower():  # perhaps half a surrogate pair
            payload = json.loads(json.dumps(payload, ensure_ascii=False).encode("utf-8", "replace"))
    except ValueError:
        return None
    return payload


def _text(body: str | bytes) -> str:
    return body if isinstance(body, str) else body.decode("utf-8", errors="replace")


def count(value: Any) -> int | None:
    """A number of tokens as a server reports it; None for what cannot be one.

    >>> count(7), count(None), count(-1), count("7"), count(10**30)
    (7, None, None, None, None)
    """
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS else None


def string(value: Any) -> str:
    """A text as a server sends it; nothing for what is none."""
    return value if isinstance(value, str) else ""
