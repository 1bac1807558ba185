"""The server: uvicorn with a graceful shutdown, and connections shared evenly by several workers.

On SIGTERM, SIGHUP or SIGINT, /readyz returns 503 and new requests are rejected, so that a load balancer notices;
after `NOTICE_S` the listening socket is closed; running requests are cancelled after `gateway.drain_s`.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import logging
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette

from odar.descriptors import descriptor_limit, raise_descriptor_limit
from odar.serving.connections import LimitedProtocol
from odar.serving.service import Service
from odar.serving.workers import LEAVING, Workers
from odar.settings import GatewaySettings

LOG = logging.getLogger("odar.serving")
NOTICE_S = 1.0
"""Seconds between the 503 of /readyz and closing the listening socket."""
_PRECEDENCE_S = 0.001
"""Seconds for which a connection is left to workers that have fewer."""
IDLE_TIMEOUT_S = 30
"""Seconds that a connection can stay open between requests."""
# parameters of glibc's mallopt
_MMAP_THRESHOLD = -3
_ARENA_MAX = -8
_MMAP_THRESHOLD_BYTES = 256 * 2**10
_TRIM_TICKS = 50
"""Tenths of a second between checks of the memory."""
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
    """The resident memory of this process; 0 if the system does not report it."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error that no task handles, with the remedy if no file descriptor is left."""
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
        self._workers.mark(LEAVING)
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
        if self._timer is not None:
            self._timer.cancel()

    async def wait_closed(self) -> None:
        """Wait until every accepted connection has its protocol."""
        await asyncio.gather(*self._accepting, return_exceptions=True)

    def _on_connection(self) -> None:
        connections = self._workers.connections[self._workers.number] + len(self._accepting)
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

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._workers = service.workers
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and tune the garbage collector."""
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(_on_loop_error)
        if (pipe := self._workers.parent_pipe) is not None:
            self._loop.add_reader(pipe, self._on_parent_end, pipe)
        shared = sockets if sockets and self._workers.count > 1 else []
        await super().startup([] if shared else sockets)
        for listening in shared:
            self.servers.append(BalancedListener(listening, self._make_protocol, self._workers))  # type: ignore[arg-type]  # it has every method that uvicorn calls
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
        service = self._service
        ending = service.concurrency_limit.draining or service.connection_limits.last_requests
        if ending or self._loop is None:
            super().handle_exit(sig, frame)
            return
        if self._workers.stopping:
            service.concurrency_limit.draining = True
        else:
            service.connection_limits.last_requests = True
            self._loop.call_soon_threadsafe(self._close_listeners)
        # A signal handler can interrupt the loop at any step, so it only schedules the shutdown.
        self._loop.call_soon_threadsafe(self._loop.call_later, NOTICE_S, super().handle_exit, sig, frame)

    def _close_listeners(self) -> None:
        for listener in self.servers:
            listener.close()

    def _on_parent_end(self, pipe: int) -> None:
        assert self._loop is not None
        self._loop.remove_reader(pipe)
        super().handle_exit(signal.SIGTERM, None)


def make_server(app: Starlette, gateway: GatewaySettings) -> DrainingServer:
    """A server for an application of `create_app`."""
    return_freed_memory()  # before the difficulty models are loaded
    raise_descriptor_limit()
    service = app.state.service
    protocol: Any = partial(LimitedProtocol, service.connection_limits)  # uvicorn only calls it
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
    return DrainingServer(config, service)
