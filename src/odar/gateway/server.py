"""The gateway's process: uvicorn with limits on its connections, with fewer system calls, and with a graceful stop.

On SIGTERM or SIGINT: /readyz turns 503 and new requests are refused, so that a load balancer notices; after
`gateway.notice_s` the listening socket closes; running requests get `gateway.drain_s` to finish, and are then
cancelled.

uvicorn limits neither the size of a request's head nor the time that a client takes to send it, nor how long a
client that does not read may hold an answer. All of that happens before a key is checked, so it is limited here:

| what | setting | what happens |
|---|---|---|
| bytes and number of headers (trailers too) | `MAX_HEADER_KB`, `MAX_HEADERS` | 431, closed |
| time to send the headers | `header_timeout_s` | 408, closed |
| time to send the body | `body_timeout_s` | 408 from the endpoint; closed 2 s after any answer |
| time between requests | 30 seconds | closed |
| time to take what was written | `write_timeout_s` | closed |
| connections of one address | `max_connections_per_peer` | 429, closed |
| requests sent ahead of their answers | 16 | closed |

uvicorn also writes head and body of a response one after the other, and each write is a system call that wakes the
client: for a short answer the two cost a seventh of all that the gateway does for it. Here they are sent together.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import ipaddress
import socket
from collections import Counter
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import httptools
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from odar.formats import dump_json
from odar.gateway.access import ConcurrencyLimit
from odar.gateway.errors import ApiError, openai_body
from odar.settings import GatewaySettings

MAX_HEADER_KB, MAX_HEADERS = 32, 100
_MAX_PIPELINED = 16
_LINGER_S = 2.0
"""How long a client may go on sending a request that has already been answered, so that it reads the answer."""
_PHRASES = {400: b"Bad Request", 408: b"Request Timeout", 429: b"Too Many Requests", 431: b"Headers Too Large"}


class ConnectionLimits:
    """The limits of all connections of a server, and how many each peer has.

    >>> limits = ConnectionLimits(GatewaySettings(max_connections_per_peer=1))
    >>> limits.acquire("10.0.0.1"), limits.acquire("10.0.0.1"), limits.acquire("10.0.0.2")
    (True, False, True)
    >>> limits.release("10.0.0.1"); limits.acquire("10.0.0.1")
    True
    """

    def __init__(self, gateway: GatewaySettings) -> None:
        self.header_timeout_s = gateway.header_timeout_s
        self.write_timeout_s = gateway.write_timeout_s
        self.per_peer = gateway.max_connections_per_peer
        self.refused: Counter[str] = Counter()
        """Connections that were closed for passing a limit, by its code."""
        self._open: Counter[str] = Counter()

    @property
    def open(self) -> int:
        """Connections of all peers."""
        return self._open.total()

    def acquire(self, peer: str) -> bool:
        """Count a connection of this peer, unless it has too many."""
        if self._open[peer] >= self.per_peer:
            return False
        self._open[peer] += 1
        return True

    def release(self, peer: str) -> None:
        """Stop counting a connection."""
        self._open[peer] -= 1
        if self._open[peer] <= 0:
            del self._open[peer]


def peer_key(address: str) -> str:
    """What counts as one peer: an IPv4 address, or the /64 that an IPv6 client can choose its addresses from.

    >>> peer_key("10.0.0.1"), peer_of("::ffff:10.0.0.1"), peer_of("2001:db8::1:2:3:4") == peer_of("2001:db8::9")
    ('10.0.0.1', '10.0.0.1', True)
    """
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(found.ipv4_mapped or ipaddress.IPv6Network((int(found), 64), strict=False))


class CoalescingTransport:
    """A transport that sends at once what is written within one turn of the event loop."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._buffer: list[bytes] = []
        self.is_closing = transport.is_closing
        self.get_extra_info = transport.get_extra_info
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def write(self, data: bytes) -> None:
        """Send it, with what else is written by the end of this turn."""
        if not self._buffer:
            self._loop.call_soon(self.flush)
        self._buffer.append(data)

    def flush(self) -> None:
        """Send the buffered data, unless the connection was closed meanwhile."""
        waiting, self._buffer = self._buffer, []
        if waiting and not self._transport.is_closing():
            self._transport.write(b"".join(waiting))

    def close(self) -> None:
        """Close the connection behind what waits."""
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _HeadTooLarge(Exception):
    """More headers, or more bytes of them, than allowed."""


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol over gathered transports, with limits on what a client may send and in which time."""

    def __init__(self, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(**options)
        self._limits = limits
        self._peer: str | None = None
        self._in_head = False
        self._in_body = False
        self._unparsed = 0
        """Bytes since the parser last made progress: an endless header, URL, trailer or chunk extension."""
        self._header_bytes = 0
        self._read_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    # ── what asyncio calls ──────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own has it
        """Count a connection, or refuse it. `CoalescingTransport` has every method that uvicorn calls."""
        super().connection_made(CoalescingTransport(transport))  # type: ignore[arg-type]  # one by its methods, no subclass
        peer = peer_key(self.client[0]) if self.client else ""
        if not self._limits.acquire(peer):
            message = f"{self._limits.per_peer} connections are the most that one address may have"
            self._refuse(429, "too_many_connections", message)
            return
        self._peer = peer
        self._read_timer = self.loop.call_later(self._limits.header_timeout_s, self._on_read_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._stop_read_timer()
        self._stop_write_timer()
        if self._peer is not None:
            self._limits.release(self._peer)
            self._peer = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came, as far as the limits allow."""
        if self.parser is None or self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        self._unparsed += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # answered as if it had not been asked for
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, _HeadTooLarge):
                self._refuse_head()
            else:
                self._refuse(400, "invalid_http", "the request is not valid HTTP")
            return
        if self._unparsed > MAX_HEADER_KB * 1000:
            self._refuse_head()
        elif len(self.pipeline) > _MAX_PIPELINED:
            self._refuse(400, "pipelined", "too many requests were sent before their answers")
        else:
            self._start_header_timer()

    def pause_writing(self) -> None:
        """The client reads more slowly than we write: start the timeout for it to catch up."""
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self._limits.write_timeout_s, self.abort, "write_timeout")

    def resume_writing(self) -> None:
        """The client has caught up."""
        super().resume_writing()
        self._stop_write_timer()

    # ── what the parser calls ───────────────────────────────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head, self._in_body, self._header_bytes = True, False, 0
        super().on_message_begin()
        self.scope["extensions"] = {"odar": {"abort": self.abort}}

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or a trailer."""
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > MAX_HEADER_KB * 1000 or len(self.headers) >= MAX_HEADERS:
            raise _HeadTooLarge
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._in_head, self._in_body, self._unparsed = False, True, 0
        self._stop_read_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._in_body, self._unparsed = False, 0
        self._stop_read_timer()
        super().on_message_complete()

    # ── ends ────────────────────────────────────────────────────────────────────────────────────────────────

    def on_response_complete(self) -> None:
        """After the answer, close the connection if the request's body does not end within `_LINGER_S` seconds."""
        super().on_response_complete()
        if self._in_body and not self.transport.is_closing():
            self._stop_read_timer()
            self._read_timer = self.loop.call_later(_LINGER_S, self.abort, "body_after_answer")

    def abort(self, reason: str) -> None:
        """End the connection at once, whatever waits to be sent; the application sees that the client has left."""
        self._limits.refused[reason] += 1
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.flow.resume_writing()
        self.transport.abort()

    def _start_header_timer(self) -> None:
        """Start the timeout for incomplete headers; endpoints do so for bodies."""
        if self._read_timer is None and self._in_head:
            self._read_timer = self.loop.call_later(self._limits.header_timeout_s, self._on_read_timeout)

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
            self._start_header_timer()  # the request before it is still being answered
        elif self._in_head:
            self._refuse(408, "header_timeout", f"no whole head within {self._limits.header_timeout_s:g} s")
        else:
            self.abort("silent")

    def _refuse_head(self) -> None:
        message = f"a request may have {MAX_HEADERS} headers of {MAX_HEADER_KB} kB together"
        self._refuse(431, "headers_too_large", message)

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Say why, unless another answer is under way, and close."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.abort(code)
            return
        self._limits.refused[code] += 1
        body = dump_json(openai_body(ApiError(status, message, code)))
        head = (
            b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head % (status, _PHRASES[status], len(body)) + body)
        self.transport.close()


IDLE_TIMEOUT_S = 30
"""How long a connection can stay open between requests."""
_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES = -3, 256 * 2**10  # of glibc's mallopt
_ARENA_MAX = -8


def return_freed_memory() -> None:
    """Let memory go back to the system when it is freed: that of a large request, and that of other threads.

    glibc raises its own threshold after the first large buffer, and then keeps hundreds of megabytes for the next;
    and it keeps free memory for each thread. Other C libraries have no such function and do not need it.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
        mallopt(_ARENA_MAX, 1)


class DrainingServer(uvicorn.Server):
    """A uvicorn server that announces its shutdown and lets running requests finish."""

    def __init__(self, config: uvicorn.Config, concurrency_limit: ConcurrencyLimit, notice_s: float) -> None:
        super().__init__(config)
        self._concurrency_limit = concurrency_limit
        self._notice_s = notice_s
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        # What was imported will never be garbage, and a request leaves no cycles worth looking for that often.
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain at the first signal; stop at the second."""
        if self._concurrency_limit.draining or self._loop is None:
            super().handle_exit(sig, frame)
            return
        self._concurrency_limit.draining = True
        # A signal handler can interrupt the loop at any step, so it only schedules the shutdown.
        self._loop.call_soon_threadsafe(self._loop.call_later, self._notice_s, super().handle_exit, sig, frame)


def make_server(app: Starlette, gateway: GatewaySettings) -> DrainingServer:
    """Return a server for an application of `create_app`."""
    return_freed_memory()  # before the models of difficulty are read
    protocol: Any = partial(LimitedProtocol, app.state.service.connections)  # uvicorn only calls it
    config = uvicorn.Config(
        app,
        host=gateway.host,
        port=gateway.port,
        log_config=None,
        access_log=False,
        proxy_headers=False,  # "local" means the address of the peer, never one that a header claims
        http=protocol,
        ws="none",
        server_header=False,
        timeout_keep_alive=IDLE_TIMEOUT_S,
        timeout_graceful_shutdown=max(1, round(gateway.drain_s)),
        backlog=max(2048, 2 * gateway.max_in_flight),
    )
    return DrainingServer(config, app.state.service.concurrency_limit, gateway.notice_s)
