"""Connections to one server: opened when needed, kept for a while, never queued for."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING

from odar.providers.address import Address
from odar.providers.connection import Answer, Connection

if TYPE_CHECKING:
    from ssl import SSLContext

KEPT_S = 15.0
"""An idle connection is kept so long; servers close theirs after some time, and tell nobody before."""
_NEXT_ADDRESS_S = 0.25
"""A name may stand for several addresses: when the first is silent, the next is tried too (RFC 8305)."""


class Unconnected(Exception):
    """No connection came about."""

    def __init__(self, why: str, *, retryable: bool = True) -> None:
        super().__init__(why)
        self.retryable = retryable


class Connections:
    """The connections of one event loop to one address."""

    def __init__(self, address: Address) -> None:
        self.loop = asyncio.get_running_loop()
        self.address = address
        self._idle: deque[tuple[float, Connection]] = deque()
        """The one used last at the end: it is the likeliest to live."""
        self._sweeping: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def asked(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> AsyncIterator[Answer]:
        """The answer to a request, its head read.

        Raises:
            Unconnected: the server cannot be reached, or not be trusted.
            Broken: the connection broke off.
            NotHttp: what came is no answer.
        """
        connection = await self.take()
        try:
            answer = connection.ask(self.address.request(method, path, headers, body))
            await answer.head()
            yield answer
        finally:
            self.give(connection)

    async def take(self) -> Connection:
        """A connection that is free, or a new one. Give it back with `give`.

        Raises:
            Unconnected: the server cannot be reached, or not be trusted.
        """
        while self._idle:
            _, connection = self._idle.pop()
            if connection.reusable:
                return connection
            connection.close()
        return await self._open()

    def give(self, connection: Connection) -> None:
        """Keep a connection whose answer is whole; close any other, so that the server stops its work."""
        if not connection.reusable:
            connection.close()
            return
        self._idle.append((self.loop.time(), connection))
        if self._sweeping is None:
            self._sweeping = self.loop.call_later(KEPT_S, self._sweep)

    def close(self) -> None:
        """Let go of the idle ones."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        while self._idle:
            self._idle.pop()[1].close()

    def _sweep(self) -> None:
        self._sweeping = None
        while self._idle and (self._idle[0][0] + KEPT_S <= self.loop.time() or not self._idle[0][1].reusable):
            self._idle.popleft()[1].close()
        if self._idle:
            self._sweeping = self.loop.call_at(self._idle[0][0] + KEPT_S, self._sweep)

    async def _open(self) -> Connection:
        from ssl import SSLError

        from aiohappyeyeballs import start_connection

        host, port = self.address.host, self.address.port
        secure = self.address.secure
        try:
            found = await self.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            raw = await start_connection(found, happy_eyeballs_delay=_NEXT_ADDRESS_S, interleave=1, loop=self.loop)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _, connection = await self.loop.create_connection(
                Connection, sock=raw, ssl=_trust() if secure else None, server_hostname=host if secure else None
            )
        except SSLError:
            raise Unconnected(f"no trusted TLS connection to {host}:{port}", retryable=False) from None
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that is none
            why = getattr(error, "strerror", None) or type(error).__name__
            raise Unconnected(f"cannot connect to {host}:{port} ({why}); check base_url") from None
        return connection


@cache
def _trust() -> SSLContext:
    """Whom to trust; reading the certificates takes a while."""
    import ssl

    return ssl.create_default_context()
