"""The gateway's process: where it listens, and how it stops.

On SIGTERM or SIGINT: /readyz turns 503 and new requests are refused, so that a load balancer notices; after
`gateway.notice_s` the door closes; running requests get `gateway.drain_s` to finish, and are then cancelled.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import socket
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette

from odar.gateway.gate import Gate
from odar.gateway.http_protocol import ConnectionLimits, LimitedProtocol
from odar.settings import GatewaySettings

IDLE_TIMEOUT_S = 30
"""How long a connection can stay open between requests."""
_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES = -3, 256 * 2**10  # of glibc's mallopt


def return_large_buffers() -> None:
    """Let the memory of a large request go back to the system when it is freed.

    glibc raises its own threshold after the first large buffer, and then keeps hundreds of megabytes for the next.
    Other C libraries have no such function, and no such habit.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)


class DrainingServer(uvicorn.Server):
    """A uvicorn server that says goodbye before it leaves."""

    def __init__(self, config: uvicorn.Config, gate: Gate, notice_s: float) -> None:
        super().__init__(config)
        self._gate = gate
        self._notice_s = notice_s
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the door."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        # What was imported will never be garbage, and a request leaves no cycles worth looking for that often.
        return_large_buffers()
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal begins the drain, a second one ends it."""
        if self._gate.draining or self._loop is None:
            super().handle_exit(sig, frame)
            return
        self._gate.draining = True
        # A signal handler runs between any two steps of the loop: it may only leave it a note.
        self._loop.call_soon_threadsafe(self._loop.call_later, self._notice_s, super().handle_exit, sig, frame)


def make_server(app: Starlette, gateway: GatewaySettings) -> DrainingServer:
    """A server for an application of `create_app`."""
    limits = ConnectionLimits(gateway)
    app.state.service.metrics.watch_connections(limits)
    protocol: Any = partial(LimitedProtocol, limits)  # uvicorn calls it, and asks nothing else of it
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
    return DrainingServer(config, app.state.service.gate, gateway.notice_s)
