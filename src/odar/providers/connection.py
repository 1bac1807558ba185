"""HTTP/1.1 connections to one model server, direct or through a proxy: opened when needed and kept for a while.

The parsing is llhttp's, through httptools, which also reads the gateway's requests. What is left is little: no
redirects, no cookies, one server. aiohttp takes 2.7 times the CPU for a call (measured alone, not in the
gateway; docs/lab-notes.md).
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple, cast
from urllib.parse import quote, unquote, urlsplit

import httptools

if TYPE_CHECKING:
    from ssl import SSLContext

KEPT_S = 15.0
"""How long an idle connection is kept; servers close theirs after some time without notice."""
_MAX_HEADER_BYTES = 64 * 2**10
"""Limit for one response: its headers, those of 1xx responses before it, and its trailers."""
_MAX_HEADERS = 256
"""Limit for the number of headers of one response, counted in the same way."""
_ENOUGH_BYTES = 2**18
"""Unread so far: then the server has to wait."""
_MAX_TUNNEL_HEAD = 16 * 2**10
_NEXT_ADDRESS_S = 0.25
"""A name may stand for several addresses: when the first is silent, the next is tried too (RFC 8305)."""
_PORTS = {"http": 80, "https": 443}
_SAFE = "%/:@!$&'()*+,;=~-._"  # what may stand in a path as it is; a blank or a line break may not


class Unconnected(Exception):
    """No connection came about."""

    def __init__(self, why: str, *, retryable: bool = True) -> None:
        super().__init__(why)
        self.retryable = retryable


class Broken(Exception):
    """The connection is gone, and the answer with it."""


class NotHttp(Exception):
    """The response is not valid HTTP, or has too many headers."""


class Connection(asyncio.Protocol):
    """A connection; one request at a time. Its attributes are those of the answer that is coming in."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        """Names in lower case; a header that comes twice has its values joined by a comma."""
        self.whole = True
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._keep = True
        self._paused = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._pieces: list[bytes] = []
        self._unread = 0
        self._unparsed = 0
        """Bytes since the parser last reached a head or a body: an endless header, trailer or chunk extension."""
        self._header_bytes = 0
        self._header_count = 0
        self._new_headers: dict[str, str] = {}

    @property
    def reusable(self) -> bool:
        """Whether another request may follow: the last answer is whole, and the server stays."""
        done = self.whole and not self._paused  # paused: the response was not read to its end
        return done and self._keep and self._transport is not None and not self._transport.is_closing()

    @property
    def content_type(self) -> str:
        """Such as application/json; empty if the server does not say."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def ask(self, request: bytes) -> None:
        """Send a request, head and body; its answer is to come."""
        self.status, self.headers, self.whole, self._error = 0, {}, False, None
        self._pieces, self._unread = [], 0
        self._unparsed = self._header_bytes = self._header_count = 0
        if self._transport is None:
            self._end(Broken("the connection broke off"))
        else:
            self._transport.write(request)

    async def head(self) -> None:
        """Wait for status and headers.

        Raises:
            Broken: there will be none.
            NotHttp: something else came.
        """
        while not self.status:
            await self._news()

    async def read(self) -> bytes:
        """Return the part of the body that arrived since the last call; empty at the end.

        Raises:
            Broken: its end will not come.
            NotHttp: something else came.
        """
        while not self._pieces:
            if self.whole:
                return b""
            await self._news()
        pieces, self._pieces, self._unread = self._pieces, [], 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def all(self, limit: int | None = None) -> bytes:
        """Return the rest of the body; no more than the limit, if there is one."""
        body = bytearray()
        while (limit is None or len(body) < limit) and (piece := await self.read()):
            body += piece
        return bytes(body[:limit])

    def close(self) -> None:
        """Close the connection, and give up an answer that is not whole."""
        if self._transport is not None:
            self._transport.abort()

    async def _news(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _end(self, error: Exception | None = None) -> None:
        """Nothing more will come: the answer is whole, or there is an error."""
        if not self.whole and self._error is None:
            self.whole, self._error = error is None, error
            self._wake()

    # ── what asyncio calls ──────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport is not a subclass

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        if self.whole:  # data without a request
            self.close()
            return
        self._unparsed += len(data)
        refused = False
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            refused = True
        if refused or self._unparsed > _MAX_HEADER_BYTES:
            self._keep = False
            self._end(NotHttp("the answer is not HTTP"))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the response, including one without a declared length."""
        self._transport = None
        if self.status and exc is None and not {"content-length", "transfer-encoding"} & self.headers.keys():
            self._end()
        else:
            what = "the answer broke off before it was whole" if self.status else "the connection broke off"
            self._end(Broken(what))

    # ── what the parser calls ───────────────────────────────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        """Begin a response; it may be an unrequested one after the requested one."""
        self._new_headers = {}
        if self.whole:
            self._keep = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep one header, or count a trailer."""
        self._header_bytes += len(name) + len(value)
        self._header_count += 1
        if self._header_bytes > _MAX_HEADER_BYTES or self._header_count > _MAX_HEADERS:
            raise NotHttp
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers = self._new_headers
        headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        """The headers are complete; those of a 1xx response are ignored."""
        status = self._parser.get_status_code()
        if status >= 200 and not self.whole:
            self.headers, self.status = self._new_headers, status
            self._new_headers = {}  # trailers are counted, and not kept
            self._unparsed = 0
            self._wake()

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body, and have the server wait if there are enough."""
        self._unparsed = 0
        if self.whole or not self.status:
            return
        self._pieces.append(body)
        self._unread += len(body)
        self._wake()
        if self._unread > _ENOUGH_BYTES and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """The answer is whole, unless it was only to say that one will come."""
        if self.status and not self.whole:
            self._keep = self._parser.should_keep_alive()
            self._unparsed = 0
            self._end()


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
    """The `user:password@` of the URL, encoded for a Basic header; empty if there are none."""

    @classmethod
    def parse(cls, url: str) -> Address:
        """Return an http(s) address taken apart.

        Raises:
            ValueError: the URL is invalid.

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
        r"""Return a whole request. Its headers must hold no line breaks.

        >>> Address.parse("http://h:1/v1").request("POST", "/chat", {"x-a": "b"}, b"{}")
        b'POST /v1/chat HTTP/1.1\r\nhost: h:1\r\nx-a: b\r\ncontent-length: 2\r\n\r\n{}'
        """
        target = self.path + _quoted(path)
        if self.query:
            target += f"{'&' if '?' in path else '?'}{self.query}"
        own = {"host": self.authority}
        if self.credentials and "authorization" not in headers:
            own["authorization"] = f"Basic {self.credentials}"
        lines = [f"{name}: {value}" for name, value in {**own, **headers, "content-length": len(body)}.items()]
        return "\r\n".join([f"{method} {target} HTTP/1.1", *lines, "", ""]).encode() + body


@lru_cache(maxsize=64)
def _quoted(path: str) -> str:
    return quote(path, safe=_SAFE + "?")


@cache
def default_tls() -> SSLContext:
    """Return the system's CAs and no client certificate; OpenSSL reads SSL_CERT_FILE and SSL_CERT_DIR."""
    import ssl

    return ssl.create_default_context()


def proxy_for(address: Address) -> Address | None:
    """The proxy that HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY name for a server; None for this machine.

    Raises:
        Unconnected: the variable holds something else than an http:// address.
    """
    from urllib.request import (  # type: ignore[attr-defined]  # the second is unknown to typeshed
        getproxies_environment,
        proxy_bypass_environment,
    )

    proxies = getproxies_environment()
    scheme = "https" if address.secure else "http"
    name = scheme if proxies.get(scheme) else "all"
    url = proxies.get(name)
    server = f"{address.host}:{address.port}"
    if not url or _is_loopback(address.host) or proxy_bypass_environment(server, proxies):
        return None
    try:
        proxy = Address.parse(url if "://" in url else f"http://{url}")
    except ValueError:
        proxy = None
    if proxy is None or proxy.secure:
        raise Unconnected(f"{name.upper()}_PROXY is not an http:// address of a proxy", retryable=False)
    return proxy


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


class Connections:
    """The connections of one event loop to one address, through a proxy if the environment names one for it.

    Raises:
        Unconnected: what the environment names is no proxy.
    """

    def __init__(self, address: Address, tls: SSLContext | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.address = address
        self.proxy = proxy_for(address)
        self._tls = tls
        self._proxy_headers: dict[str, str] = {}
        if self.proxy is not None and self.proxy.credentials:
            self._proxy_headers["proxy-authorization"] = f"Basic {self.proxy.credentials}"
        self._target = address
        self._headers: dict[str, str] = {}
        if self.proxy is not None and not address.secure:  # it reads the request, which names the server
            self._target = address._replace(path=f"http://{address.authority}{address.path}")
            self._headers = self._proxy_headers
        self._idle: dict[Connection, asyncio.TimerHandle] = {}
        """What closes each of them; the one used last at the end, as it is the likeliest to live."""

    @asynccontextmanager
    async def asked(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> AsyncIterator[Connection]:
        """Send a request on a connection that is free, or a new one; yield the connection with the head read.

        A connection whose answer was read to its end is kept, any other closed, so that the server stops its work.

        Raises:
            Unconnected: the server cannot be reached, or not be trusted.
            Broken: the connection broke off.
            NotHttp: what came is no answer.
        """
        connection = await self._take()
        try:
            connection.ask(self._target.request(method, path, {**headers, **self._headers}, body))
            await connection.head()
            yield connection
        finally:
            if connection.reusable:
                self._idle[connection] = self.loop.call_later(KEPT_S, self._expire, connection)
            else:
                connection.close()

    def close(self) -> None:
        """Close the idle ones."""
        while self._idle:
            connection, expiry = self._idle.popitem()
            expiry.cancel()
            connection.close()

    async def _take(self) -> Connection:
        while self._idle:
            connection, expiry = self._idle.popitem()
            expiry.cancel()
            if connection.reusable:
                return connection
            connection.close()
        return await self._open()

    def _expire(self, connection: Connection) -> None:
        del self._idle[connection]
        connection.close()

    async def _open(self) -> Connection:
        from ssl import SSLError

        from aiohappyeyeballs import start_connection

        secure, server = self.address.secure, f"{self.address.host}:{self.address.port}"
        host, port = (self.proxy or self.address)[:2]
        try:
            found = await self.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            raw = await start_connection(found, happy_eyeballs_delay=_NEXT_ADDRESS_S, interleave=1, loop=self.loop)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.proxy is not None and secure:
                await self._tunnel(raw)
            context = (self._tls or default_tls()) if secure else None
            _, connection = await self.loop.create_connection(
                Connection, sock=raw, ssl=context, server_hostname=self.address.host if secure else None
            )
        except SSLError:
            remedy = "name its CA in SSL_CERT_FILE or in the provider's ca_file"
            raise Unconnected(f"no trusted TLS connection to {server}; {remedy}", retryable=False) from None
        except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
            why = getattr(error, "strerror", None) or type(error).__name__
            what = f"the proxy {host}:{port}" if self.proxy else server
            check = "the proxy variables" if self.proxy else "base_url"
            raise Unconnected(f"cannot connect to {what} ({why}); check {check}") from None
        return connection

    async def _tunnel(self, raw: socket.socket) -> None:
        """Have the proxy connect the socket to the server (CONNECT); close the socket if it does not.

        Raises:
            Unconnected: the proxy refuses.
            OSError: it closes the connection, or does not speak HTTP.
        """
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        server = f"{host}:{self.address.port}"
        lines = [f"{name}: {value}" for name, value in {"host": server, **self._proxy_headers}.items()]
        head = b""
        try:
            request = "\r\n".join([f"CONNECT {server} HTTP/1.1", *lines, "", ""])
            await self.loop.sock_sendall(raw, request.encode())
            while not head.endswith(b"\r\n\r\n"):  # the server speaks only after us, so nothing follows the head
                piece = await self.loop.sock_recv(raw, 4096)
                head += piece
                if not piece or len(head) > _MAX_TUNNEL_HEAD:
                    raise ConnectionError
            status = int(head[9:12]) if head.startswith(b"HTTP/1.") and head[9:12].isdigit() else 0
            if not 200 <= status < 300:
                remedy = (
                    "check user and password in HTTPS_PROXY" if status == 407 else "check HTTPS_PROXY and NO_PROXY"
                )
                answer = f"answers {status}" if status else "does not answer in HTTP"
                raise Unconnected(f"the proxy {answer} for {server}; {remedy}", retryable=status >= 500)
        except BaseException:
            raw.close()
            raise
