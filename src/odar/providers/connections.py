"""Connections to one server: opened when needed, kept for a while, never queued for."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from odar.providers.connection import Answer, Connection

if TYPE_CHECKING:
    from ssl import SSLContext

_PORTS = {"http": 80, "https": 443}
_SAFE = "%/:@!$&'()*+,;=~-._"  # what may stand in a path as it is; a blank or a line break may not
KEPT_S = 15.0
"""An idle connection is kept so long; servers close theirs after some time, and tell nobody before."""
_NEXT_ADDRESS_S = 0.25
"""A name may stand for several addresses: when the first is silent, the next is tried too (RFC 8305)."""


class Address(NamedTuple):
    """A server, and what stands before every path on it."""

    host: str
    port: int
    secure: bool
    path: str
    query: str
    authority: str
    """Host and port as a Host header has them."""
    credentials: str
    """From `user:password@` in the address, as a Basic header has them; empty where there are none."""

    @classmethod
    def parse(cls, url: str) -> Address:
        """An http(s) address taken apart.

        Raises:
            ValueError: it is none.

        >>> Address.parse("https://api.example.com/v1/")[:4]
        ('api.example.com', 443, True, '/v1')
        >>> Address.parse("localhost:8080")
        Traceback (most recent call last):
        ValueError: not an http(s) address
        """
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        if parts.scheme not in _PORTS or not host:
            raise ValueError("not an http(s) address")
        if not host.isascii():
            host = host.encode("idna").decode()
        shown = f"[{host}]" if ":" in host else host
        user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        return cls(
            host,
            _PORTS[parts.scheme] if port is None else port,
            parts.scheme == "https",
            quote(parts.path.rstrip("/"), safe=_SAFE),
            quote(parts.query, safe=_SAFE + "?"),
            shown if port is None else f"{shown}:{port}",
            base64.b64encode(user.encode()).decode() if "@" in parts.netloc else "",
        )

    def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
        r"""A whole request. Its headers must hold no line breaks.

        >>> Address.parse("http://h:1/v1").request("POST", "/chat", {"x-a": "b"}, b"{}")
        b'POST /v1/chat HTTP/1.1\r\nhost: h:1\r\nx-a: b\r\ncontent-length: 2\r\n\r\n{}'
        """
        target = self.path + quote(path, safe=_SAFE) + (f"?{self.query}" if self.query else "")
        own = {"host": self.authority}
        if self.credentials and "authorization" not in headers:
            own["authorization"] = f"Basic {self.credentials}"
        lines = [f"{name}: {value}" for name, value in {**own, **headers, "content-length": len(body)}.items()]
        return "\r\n".join([f"{method} {target} HTTP/1.1", *lines, "", ""]).encode() + body


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
