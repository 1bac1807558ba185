"""Connections of clients: uvicorn's HTTP/1.1 protocol with limits, and fewer system calls.

uvicorn does not limit the size of headers, the time to send them, or the time to read an answer. These limits apply
before a key is checked:

| limit | constant | on violation |
|---|---|---|
| bytes and number of headers (trailers too) | `MAX_HEADER_KB`, `MAX_HEADERS` | 431, closed |
| time to send the headers | `HEADER_TIMEOUT_S` | 408, closed |
| time to send the body | `exchange.BODY_TIMEOUT_S` | 408 from the endpoint; closed 2 s after any answer |
| time between requests | `server.IDLE_TIMEOUT_S` | closed |
| time to read an answer | `exchange.WRITE_TIMEOUT_S` | closed |
| connections of one address | `MAX_CONNECTIONS_PER_PEER` | 429, closed |
| connections of all addresses | half of the file descriptors | 429, closed |
| pipelined requests | `_MAX_PIPELINED` | closed |

uvicorn also writes the head and the body of a response in two system calls, and each wakes the client: a seventh of
the time for a short answer. `CoalescingTransport` sends them together.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from odar.descriptors import client_connections
from odar.formats import dump_json
from odar.serving import exchange
from odar.serving.access import parse_address
from odar.serving.errors import ApiError, openai_body
from odar.serving.workers import Workers

HEADER_TIMEOUT_S = 10.0
"""Seconds that a client has to send the headers of a request."""
MAX_CONNECTIONS_PER_PEER = 1024
"""Connections from one address (IPv6: one /64) to a worker."""
MAX_HEADER_KB, MAX_HEADERS = 32, 100
_MAX_PIPELINED = 16
_LINGER_S = 2.0
"""Seconds for a client to send the rest of a request that has been answered, so that it reads the answer."""


class ConnectionLimits:
    """Limits on the connections of a server, and the number of connections of each peer.

    A peer can have as many connections as it leaves free, so that one alone has half of them. Workers share
    `MAX_CONNECTIONS_PER_PEER` evenly.

    >>> limits = ConnectionLimits()
    >>> limits.acquire("10.0.0.1"), limits.open
    (True, 1)
    """

    def __init__(self, workers: Workers | None = None) -> None:
        self._workers = workers or Workers()
        self.per_peer = max(1, MAX_CONNECTIONS_PER_PEER // self._workers.count)
        self.last_requests = False
        """Whether each connection is closed after its next answer."""
        self.refused: Counter[str] = Counter()
        """Connections that were closed at a limit, by its code."""
        self._open: Counter[str] = Counter()

    @property
    def open(self) -> int:
        return self._workers.connections[self._workers.number]

    def acquire(self, peer: str) -> bool:
        """Count a connection of this peer; return False if it has too many."""
        if self._open[peer] >= min(self.per_peer, client_connections() - self.open):
            return False
        self._open[peer] += 1
        self._workers.connections[self._workers.number] += 1
        return True

    def release(self, peer: str) -> None:
        self._open[peer] -= 1
        if self._open[peer] <= 0:
            del self._open[peer]
        self._workers.connections[self._workers.number] -= 1


def peer_key(address: str) -> str:
    """Return what identifies a peer: an IPv4 address, or the /64 network of an IPv6 address.

    >>> peer_key("10.0.0.1"), peer_key("::ffff:10.0.0.1"), peer_key("2001:db8::1:2:3:4") == peer_key("2001:db8::9")
    ('10.0.0.1', '10.0.0.1', True)
    """
    parsed = parse_address(address.partition("%")[0])
    if parsed is not None and parsed.version == 6:
        return str(ipaddress.IPv6Network((int(parsed), 64), strict=False))
    return address if parsed is None else str(parsed)


class CoalescingTransport:
    """A transport that sends all data written in one iteration of the event loop together."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._buffer: list[bytes] = []
        self.is_closing = transport.is_closing
        self.get_extra_info = transport.get_extra_info
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def write(self, data: bytes) -> None:
        if not self._buffer:
            self._loop.call_soon(self.flush)
        self._buffer.append(data)

    def flush(self) -> None:
        """Send the buffered data, unless the connection is closing."""
        data, self._buffer = self._buffer, []
        if data and not self._transport.is_closing():
            self._transport.write(b"".join(data))

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _head_too_large() -> ApiError:
    message = f"too many or too large headers; the limits are {MAX_HEADERS} headers and {MAX_HEADER_KB} kB"
    return ApiError(431, message, "headers_too_large")


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with `ConnectionLimits`, over a `CoalescingTransport`."""

    def __init__(self, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(**options)
        self._limits = limits
        self._peer: str | None = None
        self._in_head = False
        self._in_body = False
        self._unparsed = 0
        """Bytes since the last progress of the parser, to limit a header, URL, trailer or chunk extension."""
        self._header_bytes = 0
        self._read_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._unanswered: list[RequestResponseCycle] = []
        """The request that is being answered, and those that were sent before its answer."""

    # ── called by asyncio ───────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own has it
        super().connection_made(CoalescingTransport(transport))  # type: ignore[arg-type]  # it has every method that uvicorn calls
        peer = peer_key(self.client[0]) if self.client else ""
        if not self._limits.acquire(peer):
            limits = f"one address can have {self._limits.per_peer}, all {client_connections()}"
            self._refuse(ApiError(429, f"too many connections: {limits}", "too_many_connections"))
            return
        self._peer = peer
        self._read_timer = self.loop.call_later(HEADER_TIMEOUT_S, self._on_read_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_read_timer()
        self._stop_write_timer()
        if self._peer is not None:
            self._limits.release(self._peer)
            self._peer = None
        self._disconnect()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.parser is None or self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        self._unparsed += len(data)
        while data and len(self.pipeline) <= _MAX_PIPELINED:
            try:
                self.parser.feed_data(data)
                break
            except httptools.HttpParserUpgrade as upgrade:
                # The parser has skipped the body, which follows if the offer is ignored (RFC 9110, 7.8).
                data = self._head_without_upgrade() + data[upgrade.args[0] :]
            except httptools.HttpParserError as error:
                refusal = error.__context__  # raised below, by a call of the parser
                if not isinstance(refusal, ApiError):
                    refusal = ApiError(400, "the request is not valid HTTP", "invalid_http")
                self._refuse(refusal)
                return
        if self._unparsed > MAX_HEADER_KB * 1000:
            self._refuse(_head_too_large())
        elif len(self.pipeline) > _MAX_PIPELINED:
            self._refuse(ApiError(400, "too many requests were sent before their answers", "pipelined"))
        else:
            self._start_header_timer()

    def pause_writing(self) -> None:
        """Start the timeout for a client that reads too slowly."""
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(exchange.WRITE_TIMEOUT_S, self.abort, "write_timeout")

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_write_timer()

    # ── called by the parser ────────────────────────────────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        self._in_head = True
        self._in_body = False
        self._header_bytes = 0
        super().on_message_begin()
        self.scope["extensions"] = {"odar": {"abort": self.abort}}

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > MAX_HEADER_KB * 1000 or len(self.headers) >= MAX_HEADERS:
            raise _head_too_large()
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Stop the header timeout, unless `data_received` is about to repeat the headers without an upgrade."""
        if self.parser.get_method() == b"CONNECT":
            raise ApiError(400, "the gateway is not a proxy", "invalid_http")
        version = self.parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise ApiError(505, "the gateway speaks HTTP/1.1", "http_version")
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (version == "1.1" and not hosts):
            raise ApiError(400, f"the request has {hosts} Host headers; send one", "invalid_host")
        if self.parser.should_upgrade():
            return
        self._in_head = False
        self._in_body = True
        self._unparsed = 0
        self._stop_read_timer()
        super().on_headers_complete()
        self._unanswered = [*(each for each in self._unanswered if not each.response_complete), self.cycle]
        if self._limits.last_requests:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._in_body = False
        self._unparsed = 0
        self._stop_read_timer()
        super().on_message_complete()

    # ── end of a response or a connection ───────────────────────────────────────────────────────────────────

    def on_response_complete(self) -> None:
        """Close the connection if the rest of the request does not arrive within `_LINGER_S` seconds."""
        super().on_response_complete()
        if self._in_body and not self.transport.is_closing():
            self._stop_read_timer()
            self._read_timer = self.loop.call_later(_LINGER_S, self.abort, "body_after_answer")

    def abort(self, reason: str) -> None:
        """Close the connection without sending buffered data; the application sees a disconnect."""
        self._limits.refused[reason] += 1
        self._disconnect()
        self.flow.resume_writing()
        self.transport.abort()

    def _disconnect(self) -> None:
        """Tell the requests that their client has left; uvicorn tells only the last one."""
        for cycle in self._unanswered:
            cycle.disconnected = not cycle.response_complete
            cycle.message_event.set()
        self._unanswered = []

    def _head_without_upgrade(self) -> bytes:
        """Return the head of the request that offered an upgrade, without the offer, for a new parser."""
        line = b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        kept = (b"%b: %b" % pair for pair in self.headers if pair[0] not in (b"upgrade", b"http2-settings"))
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        return b"\r\n".join((line, *kept, b"", b""))

    def _start_header_timer(self) -> None:
        """Start the timeout for incomplete headers; endpoints have one for bodies."""
        if self._read_timer is None and self._in_head:
            self._read_timer = self.loop.call_later(HEADER_TIMEOUT_S, self._on_read_timeout)

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _on_read_timeout(self) -> None:
        self._read_timer = None
        if self.cycle is not None and not self.cycle.response_complete and self._in_head:
            self._start_header_timer()  # the previous request is still being answered
        elif self._in_head:
            message = f"the headers did not arrive within {HEADER_TIMEOUT_S:g} s"
            self._refuse(ApiError(408, message, "header_timeout"))
        else:
            self.abort("silent")

    def _refuse(self, error: ApiError) -> None:
        """Send an error, unless another answer is being sent, and close the connection."""
        code = str(error.code)
        if self.cycle is not None and not self.cycle.response_complete:
            self.abort(code)
            return
        self._limits.refused[code] += 1
        body = dump_json(openai_body(error))
        head = (
            b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head % (error.status, HTTPStatus(error.status).phrase.encode(), len(body)) + body)
        self.transport.close()
