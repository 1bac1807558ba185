"""Responses of model servers, read at once or as a stream: each becomes a `Reply` or a `ProviderError`.

API keys are redacted from everything in an error. Its message is one line; the redacted body of the response is
its `body`.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

import orjson

from odar.background import run_by_size
from odar.errors import ProviderError, ProviderProtocolError, ProviderUnreachable, one_line
from odar.formats import MAX_STDLIB_BYTES, dump_json, load_json
from odar.providers.base import Delta, OnDelta, Reply
from odar.providers.connection import Connection

_MAX_ERROR_BYTES = 64 * 2**10
"""Largest error that is read, or kept as the body of a `ProviderError`; of a larger one, only its message is."""
_MAX_COUNT = 10**12
"""Larger counts of tokens are invalid; they would not fit the store."""
_EVENTS_AT_ONCE = 50
"""Number of events of a stream after which other requests go on; they take about a millisecond."""
_STREAM_TAIL_S = 0.1
"""Maximum wait after [DONE] for the end of the body, so that the connection can be reused."""
T = TypeVar("T")
E = TypeVar("E", bound=ProviderError)
_RETRYABLE_STATUSES = frozenset({408, 409, 425, 429, *range(500, 600)})
BODY_CHARS = 8_000
"""Length to which the body of an error is cut."""

_MESSAGE_CHARS = 200
_SHORTEST_SECRET = 5
"""Shorter values are placeholders such as "none"; redacting them would garble messages."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

_STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "internal_error": 500,
    "internal_server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""Status of an error inside a 200 response, whose status line was sent before the error occurred."""

_REMEDIES = {
    402: "check the account's credit",
    404: "check base_url and the model name",
    **dict.fromkeys(range(300, 400), "redirects are not followed, check base_url"),
}
_OUT_OF_QUOTA = "insufficient_quota"
"""A code that comes with a retryable status although a retry cannot succeed."""
_PROXY_TIMEOUTS = frozenset({502, 504, 524})
"""Statuses of a proxy: the model may have answered, and billed. Other errors cost nothing."""
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
        status, headers = self._connection.status, self._connection.headers
        # A redirect is an error too: following it would send the key to another host.
        if not 200 <= status < 300:
            body = await self._connection.read_all(_MAX_ERROR_BYTES)
            raise self._errors.from_status(status, headers, _decode(body))
        if encoding := headers.get("content-encoding", "").lower().removeprefix("identity"):
            why = f"the answer is compressed ({encoding}) although the request forbids it; check base_url"
            raise self._errors.create(ProviderProtocolError, why, retryable=False)

    async def read(self, interpret: Callable[[Payload], T], unread: str = "") -> T:
        """What `interpret` makes of the JSON of the body, without its field `unread`."""
        body = await self._connection.read_all()
        return await run_by_size(len(body), partial(self._parse, interpret, body, unread))

    async def stream(self, collector: Collector, on_delta: OnDelta) -> Reply:
        reader = SseReader()
        while not reader.done and (chunk := await self._connection.read()):
            for number, event in enumerate(reader.feed(chunk), start=1):
                if number % _EVENTS_AT_ONCE == 0:
                    await asyncio.sleep(0)  # others' turn
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
            why = f"the answer is not a JSON object{remedy}"
            raise self._errors.create(ProviderProtocolError, why, body=_decode(body), retryable=is_json)
        if payload.get("error"):
            raise self._errors.from_payload(payload, quote=len(body) <= _MAX_ERROR_BYTES)
        return self._checked(lambda: interpret(payload), body)

    def _checked(self, read: Callable[[], T], body: bytes | None = None) -> T:
        """What `read` returns; ProviderProtocolError if the answer is not as it expects."""
        try:
            return read()
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as exc:
            why = f"the answer has an unexpected structure: {type(exc).__name__}: {exc}"
        raise self._errors.create(ProviderProtocolError, why, body=None if body is None else _decode(body))


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


@dataclass(frozen=True, slots=True)
class ErrorFactory:
    """Creates the errors of one provider.

    >>> errors = ErrorFactory("openai", key_hint="set OPENAI_API_KEY", secrets=("sk-secret",))
    >>> error = errors.from_status(401, {}, '{"error": {"message": "bad key sk-secret", "code": "key"}}')
    >>> print(error)
    openai: HTTP 401 (key): bad key [redacted]; set OPENAI_API_KEY
    >>> error.retryable
    False
    """

    provider: str
    key_hint: str = ""
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def redact(self, text: str) -> str:
        """The text with this provider's secrets replaced."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            if len(secret) >= _SHORTEST_SECRET:
                text = text.replace(secret, "[redacted]")
        return text

    def from_status(self, status: int, headers: Mapping[str, str], body: str) -> ProviderError:
        """The error for an HTTP status that is not a success."""
        payload = None
        with suppress(ValueError):
            payload = load_json(body)
        return self._from_body(f"HTTP {status}", payload, body, status, retry_after(headers))

    def from_payload(self, payload: Mapping[str, Any], *, quote: bool = True) -> ProviderError:
        """The error inside a response with a success status, such as one in the middle of a stream."""
        body = json.dumps(payload, ensure_ascii=False) if quote else ""
        return self._from_body("error in the answer", payload, body)

    def create(self, kind: type[E], why: str, *, body: str | None = None, retryable: bool = True, **more: Any) -> E:
        """An error without a status: no connection, an interrupted one, or an invalid response."""
        return kind(
            f"{self.provider}: {_short(self.redact(why))}",
            provider=self.provider,
            retryable=retryable,
            body=None if body is None else self.redact(body)[:BODY_CHARS],
            **more,
        )

    def not_sent(self, why: str, *, retryable: bool = True, local: bool = False) -> ProviderUnreachable:
        """The error for a request that could not be sent."""
        return self.create(
            ProviderUnreachable, why, retryable=retryable, may_be_billed=False, reached=False, local=local
        )

    def _from_body(
        self, what: str, payload: Any, body: str, sent_status: int | None = None, wait: float | None = None
    ) -> ProviderError:
        code, text = (self.redact(each[:_MAX_ERROR_BYTES]) for each in error_of(payload))
        status = sent_status
        if status is None:
            # OpenRouter's code is the status of its upstream provider.
            is_status = len(code) == 3 and code.isdecimal() and code[0] in "45"
            status = int(code) if is_status else _STATUS_OF_TYPE.get(code)
        message = f"{self.provider}: {what}"
        if code:
            message += f" ({_short(code)})"
        if text:
            message += f": {_short(text)}"
        if status in (401, 403):
            message += f"; {self.key_hint or 'check the API key'}"
        elif status in _REMEDIES:
            message += f"; {_REMEDIES[status]}"
        elif wait is not None:
            message += f"; retry after {wait:g} s"
        return ProviderError(
            message,
            provider=self.provider,
            status=status,
            code=code or None,
            retry_after=wait,
            retryable=status in _RETRYABLE_STATUSES and code != _OUT_OF_QUOTA,
            may_be_billed=sent_status is None or sent_status in _PROXY_TIMEOUTS,
            body=self.redact(body)[:BODY_CHARS],
        )


def error_of(payload: Any) -> tuple[str, str]:
    """The code and the message of an error, in any of the formats that servers use; empty if missing.

    >>> error_of({"error": {"message": "no such model", "code": None, "type": "not_found_error"}})
    ('not_found_error', 'no such model')
    >>> error_of({"error": "model not loaded"}), error_of({"detail": "Not Found"}), error_of(None)
    (('', 'model not loaded'), ('', 'Not Found'), ('', ''))
    """
    error = payload.get("error", payload) if isinstance(payload, dict) else payload
    if not isinstance(error, dict):
        return "", str_or_empty(error)
    code = error.get("code") or error.get("type")
    text = error.get("message") or error.get("detail")
    return (str(code) if isinstance(code, str | int) else ""), str_or_empty(text)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds of `retry-after-ms` or `retry-after`; None if missing or a date.

    >>> retry_after({"retry-after": "1.5"}), retry_after({"retry-after-ms": "250"}), retry_after({})
    (1.5, 0.25, None)
    """
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        with suppress(ValueError):
            seconds = float(headers.get(name, "")) / unit
            if math.isfinite(seconds):
                return max(0.0, seconds)
    return None


def _short(text: str) -> str:
    return one_line(text[: 4 * _MESSAGE_CHARS], _MESSAGE_CHARS)
