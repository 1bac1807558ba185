"""The server: uvicorn with limits on connections, fewer system calls and a graceful shutdown.

On SIGTERM, SIGHUP or SIGINT, /readyz returns 503 and new requests are rejected, so that a load balancer notices;
after `NOTICE_S` the listening socket is closed; running requests are cancelled after `gateway.drain_s`.

uvicorn does not limit the size of headers, the time to send them, or the time to read an answer. These limits apply
before a key is checked:

| limit | constant | on violation |
|---|---|---|
| bytes and number of headers (trailers too) | `MAX_HEADER_KB`, `MAX_HEADERS` | 431, closed |
| time to send the headers | `HEADER_TIMEOUT_S` | 408, closed |
| time to send the body | `BODY_TIMEOUT_S` | 408 from the endpoint; closed 2 s after any answer |
| time between requests | 30 seconds | closed |
| time to read an answer | `WRITE_TIMEOUT_S` | closed |
| connections of one address | `MAX_CONNECTIONS_PER_PEER` | 429, closed |
| connections of all addresses | half of the file descriptors | 429, closed |
| pipelined requests | 16 | closed |

uvicorn also writes the head and the body of a response in two system calls, and each wakes the client: a seventh of
the time for a short answer. `CoalescingTransport` sends them together.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import ipaddress
import logging
import os
import signal
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from types import FrameType
from typing import Any

import httptools
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from odar.descriptors import client_connections, descriptor_limit, raise_descriptor_limit
from odar.formats import dump_json
from odar.serving import exchange
from odar.serving.concurrency import ConcurrencyLimit
from odar.serving.errors import ApiError, openai_body
from odar.serving.workers import Workers
from odar.settings import GatewaySettings

LOG = logging.getLogger("odar.serving")
NOTICE_S = 1.0
"""Seconds between the 503 of /readyz and closing the listening socket."""
HEADER_TIMEOUT_S = 10.0
"""Seconds that a client has to send the headers of a request."""
MAX_CONNECTIONS_PER_PEER = 1024
"""Connections from one address (IPv6: one /64) to a worker."""
MAX_HEADER_KB, MAX_HEADERS = 32, 100
_MAX_PIPELINED = 16
_LINGER_S = 2.0
"""Seconds for a client to send the rest of a request that has been answered, so that it reads the answer."""
_HEAD_TOO_LARGE = (
    431,
    "headers_too_large",
    f"too many or too large headers; the limits are {MAX_HEADERS} headers and {MAX_HEADER_KB} kB",
)


class ConnectionLimits:
    """Limits on the connections of a server, and the number of connections of each peer.

    A peer can have as many connections as it leaves free, so that one alone has half of them; `most` is by default
    half of the file descriptors that the system allows. Workers share `per_peer` evenly.

    >>> limits = ConnectionLimits(per_peer=1)
    >>> limits.acquire("10.0.0.1"), limits.acquire("10.0.0.1"), limits.acquire("10.0.0.2")
    (True, False, True)
    >>> limits.release("10.0.0.1"); limits.acquire("10.0.0.1")
    True
    """

    def __init__(
        self, per_peer: int | None = None, most: int | None = None, workers: Workers | None = None
    ) -> None:
        self._most = most
        self._workers = workers or Workers()
        self.per_peer = max(1, (per_peer or MAX_CONNECTIONS_PER_PEER) // self._workers.count)
        self.last_requests = False
        """Whether each connection is closed after its next answer."""
        self.refused: Counter[str] = Counter()
        """Connections that were closed at a limit, by its code."""
        self._open: Counter[str] = Counter()

    @property
    def most(self) -> int:
        return client_connections() if self._most is None else self._most

    @property
    def open(self) -> int:
        return self._open.total()

    def acquire(self, peer: str) -> bool:
        """Count a connection of this peer; return False if it has too many."""
        if self._open[peer] >= min(self.per_peer, self.most - self._open.total()):
            return False
        self._open[peer] += 1
        self._workers.set_connections(self.open)
        return True

    def release(self, peer: str) -> None:
        self._open[peer] -= 1
        if self._open[peer] <= 0:
            del self._open[peer]
        self._workers.set_connections(self.open)


def peer_key(address: str) -> str:
    """Return what identifies a peer: an IPv4 address, or the /64 network of an IPv6 address.

    >>> peer_key("10.0.0.1"), peer_key("::ffff:10.0.0.1"), peer_key("2001:db8::1:2:3:4") == peer_key("2001:db8::9")
    ('10.0.0.1', '10.0.0.1', True)
    """
    if ":" not in address:
        return address
    try:
        ipv6 = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(ipv6.ipv4_mapped or ipaddress.IPv6Network((int(ipv6), 64), strict=False))


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


class _BadHead(Exception):
    """The headers of a request are over a limit or not valid; `args` are status, code and message."""


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

    # ── called by asyncio ───────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own has it
        super().connection_made(CoalescingTransport(transport))  # type: ignore[arg-type]  # it has every method that uvicorn calls
        peer = peer_key(self.client[0]) if self.client else ""
        if not self._limits.acquire(peer):
            message = f"too many connections: one address can have {self._limits.per_peer}, all {self._limits.most}"
            self._refuse(429, "too_many_connections", message)
            return
        self._peer = peer
        self._read_timer = self.loop.call_later(HEADER_TIMEOUT_S, self._on_read_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_read_timer()
        self._stop_write_timer()
        if self._peer is not None:
            self._limits.release(self._peer)
            self._peer = None
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
                if isinstance(error.__context__, _BadHead):
                    self._refuse(*error.__context__.args)
                else:
                    self._refuse(400, "invalid_http", "the request is not valid HTTP")
                return
        if self._unparsed > MAX_HEADER_KB * 1000:
            self._refuse(*_HEAD_TOO_LARGE)
        elif len(self.pipeline) > _MAX_PIPELINED:
            self._refuse(400, "pipelined", "too many requests were sent before their answers")
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
        self._in_head, self._in_body, self._header_bytes = True, False, 0
        super().on_message_begin()
        self.scope["extensions"] = {"odar": {"abort": self.abort}}

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > MAX_HEADER_KB * 1000 or len(self.headers) >= MAX_HEADERS:
            raise _BadHead(*_HEAD_TOO_LARGE)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Stop the header timeout, unless `data_received` is about to repeat the headers without an upgrade."""
        if self.parser.get_method() == b"CONNECT":
            raise _BadHead(400, "invalid_http", "the gateway is not a proxy")
        version = self.parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise _BadHead(505, "http_version", "the gateway speaks HTTP/1.1")
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (version == "1.1" and not hosts):
            raise _BadHead(400, "invalid_host", f"the request has {hosts} Host headers; send one")
        if self.parser.should_upgrade():
            return
        self._in_head, self._in_body, self._unparsed = False, True, 0
        self._stop_read_timer()
        super().on_headers_complete()
        if self._limits.last_requests:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._in_body, self._unparsed = False, 0
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
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.flow.resume_writing()
        self.transport.abort()

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
            self._refuse(408, "header_timeout", message)
        else:
            self.abort("silent")

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Send an error, unless another answer is being sent, and close the connection."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.abort(code)
            return
        self._limits.refused[code] += 1
        body = dump_json(openai_body(ApiError(status, message, code)))
        head = (
            b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head % (status, HTTPStatus(status).phrase.encode(), len(body)) + body)
        self.transport.close()


_PRECEDENCE_S = 0.001
"""Seconds that a connection is left to workers with fewer."""
IDLE_TIMEOUT_S = 30
"""Seconds that a connection can stay open between requests."""
_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES = -3, 256 * 2**10  # of glibc's mallopt
_ARENA_MAX = -8
_TRIM_TICKS = 50
"""Tenths of a second between two looks at the memory."""
_TRIM_BYTES = 32 << 20
"""Growth of the memory since the start above which freed parts of it are returned."""


def return_freed_memory() -> None:
    """Make glibc return freed memory to the system.

    After the first large buffer it would keep hundreds of megabytes for the next, and free memory for each thread.
    Other C libraries have no such function and do not need it.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
        mallopt(_ARENA_MAX, 1)


def trim_memory() -> None:
    """Return freed memory between objects in use, which glibc keeps; 0.3 ms for each megabyte of it."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def resident_bytes() -> int:
    """Return the memory of this process; 0 where the system does not tell."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error that no task handles; those of full tables of files say what to do."""
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        LOG.error("no connection can be accepted: %s (%d); raise ulimit -n", error.strerror, descriptor_limit())
    else:
        loop.default_exception_handler(context)


class BalancedListener:
    """Accepts connections one at a time, and leaves them for a moment to a worker that has fewer.

    uvloop accepts all that wait, so that the worker that wakes first would get every connection of a busy client.
    """

    def __init__(
        self, listening: socket.socket, make_protocol: Callable[[], asyncio.Protocol], workers: Workers
    ) -> None:
        self._socket = listening
        self._make_protocol = make_protocol
        self._workers = workers
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._accepting: set[asyncio.Task[Any]] = set()
        listening.setblocking(False)
        self._loop.add_reader(listening, self._on_connection)

    def close(self) -> None:
        """Accept no more connections; those that wait are left to other workers."""
        self._workers.mark_leaving()
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
        if self._timer is not None:
            self._timer.cancel()

    async def wait_closed(self) -> None:
        """Wait until every accepted connection has its protocol."""
        await asyncio.gather(*self._accepting, return_exceptions=True)

    def _on_connection(self) -> None:
        connections = self._workers.connections + len(self._accepting)
        if connections <= self._workers.fewest_connections + 1:
            self._accept()
        else:
            self._pause(_PRECEDENCE_S)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._socket)
        self._timer = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._loop.add_reader(self._socket, self._on_connection)
        self._accept()

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # another worker was faster, or the client has left
        except OSError as error:  # too many open files
            self._loop.call_exception_handler({"message": "no connection was accepted", "exception": error})
            self._pause(1.0)
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._loop.connect_accepted_socket(self._make_protocol, connection))
        self._accepting.add(task)
        task.add_done_callback(self._accepting.discard)


class DrainingServer(uvicorn.Server):
    """A uvicorn server that announces its shutdown and lets running requests finish."""

    def __init__(
        self,
        config: uvicorn.Config,
        concurrency_limit: ConcurrencyLimit,
        limits: ConnectionLimits | None = None,
        workers: Workers | None = None,
    ) -> None:
        super().__init__(config)
        self._limits = limits or ConnectionLimits()
        self._concurrency_limit = concurrency_limit
        self._workers = workers or Workers()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and tune the garbage collector."""
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(_on_loop_error)
        if (lifeline := self._workers.lifeline) is not None:
            self._loop.add_reader(lifeline, self._on_parent_end, lifeline)
        balanced = self._workers.count > 1 and bool(sockets)
        await super().startup([] if balanced else sockets)
        for each in sockets or () if balanced else ():
            self.servers.append(BalancedListener(each, self._make_protocol, self._workers))  # type: ignore[arg-type]  # it has every method that uvicorn calls
        # Imported objects never become garbage, and requests leave hardly any reference cycles.
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        self._trim_above = resident_bytes() + _TRIM_BYTES

    async def on_tick(self, counter: int) -> bool:
        """Return freed memory from time to time; called ten times a second."""
        if counter % _TRIM_TICKS == 0 and resident_bytes() > self._trim_above:
            await asyncio.to_thread(trim_memory)
        return await super().on_tick(counter)

    def _make_protocol(self) -> asyncio.Protocol:
        make: Any = self.config.http_protocol_class
        protocol: asyncio.Protocol = make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start a graceful shutdown at the first signal; stop at the second.

        If this worker alone is to end, the others accept connections. It refuses no request, and closes each
        connection after its next answer.
        """
        if self._concurrency_limit.draining or self._limits.last_requests or self._loop is None:
            super().handle_exit(sig, frame)
            return
        if self._workers.stopping:
            self._concurrency_limit.draining = True
        else:
            self._limits.last_requests = True
            self._loop.call_soon_threadsafe(self._close_listeners)
        # A signal handler can interrupt the loop at any step, so it only schedules the shutdown.
        self._loop.call_soon_threadsafe(self._loop.call_later, NOTICE_S, super().handle_exit, sig, frame)

    def _close_listeners(self) -> None:
        for each in self.servers:
            each.close()

    def _on_parent_end(self, lifeline: int) -> None:
        assert self._loop is not None
        self._loop.remove_reader(lifeline)
        super().handle_exit(signal.SIGTERM, None)


def make_server(app: Starlette, gateway: GatewaySettings) -> DrainingServer:
    """Return a server for an application of `create_app`."""
    return_freed_memory()  # before the difficulty models are loaded
    raise_descriptor_limit()
    protocol: Any = partial(LimitedProtocol, app.state.service.connections)  # uvicorn only calls it
    config = uvicorn.Config(
        app,
        host=gateway.host,
        port=gateway.port,
        log_config=None,
        access_log=False,
        proxy_headers=False,  # `AccessPolicy` needs the peer's own address
        http=protocol,
        ws="none",
        server_header=False,
        timeout_keep_alive=IDLE_TIMEOUT_S,
        timeout_graceful_shutdown=max(1, round(gateway.drain_s)),
        backlog=max(2048, 2 * gateway.max_in_flight),
    )
    service = app.state.service
    return DrainingServer(config, service.concurrency_limit, service.connections, service.workers)
