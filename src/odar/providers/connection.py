"""HTTP/1.1 connections to one model server, direct or through a proxy: opened on demand and reused.

llhttp parses the responses, through httptools, which also parses the gateway's requests. There are no redirects and
no cookies. docs/lab-notes.md compares other clients.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import ipaddress
import logging
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple, cast
from urllib.parse import quote, unquote, urlsplit

import httptools

from odar.descriptors import server_connections
from odar.errors import ProviderError, ProviderProtocolError, ProviderUnreachable
from odar.providers.errors import ErrorFactory

if TYPE_CHECKING:
    from ssl import SSLContext

LOG = logging.getLogger("odar.providers")
KEEP_ALIVE_S = 15.0
"""Time after which an idle connection is closed; servers close theirs without notice."""
MAX_BODY_BYTES = 64 * 2**20
"""Maximum size of a response."""
_MAX_HEADER_BYTES = 64 * 2**10
"""Limit for the headers of one response, including 1xx responses before it and trailers."""
_MAX_HEADERS = 256
"""Limit for the number of these headers."""
_MAX_UNREAD_BYTES = 2**18
"""Reading from the socket pauses while more than this is unread."""
_MAX_TUNNEL_HEAD = 16 * 2**10
_NEXT_ADDRESS_S = 0.25
"""Delay after which the next address of a host is tried as well (RFC 8305)."""
_PORTS = {"http": 80, "https": 443}
_SAFE = "%/:@!$&'()*+,;=~-._"  # characters of a path that need no quoting
_LOCAL_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
"""This machine has no socket, port or memory left."""


class Connection(asyncio.Protocol):
    """A connection for one request at a time; its attributes describe the current response."""

    def __init__(self, errors: ErrorFactory) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        """By name in lower case; the values of a repeated header are joined by commas."""
        self.complete = True
        self._errors = errors
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._keep = True
        self._paused = False
        self._failure: tuple[type[ProviderError], str] | None = None
        self._changed = asyncio.Event()
        self._pieces: list[bytes] = []
        self._unread = self._read = 0
        self._unparsed = 0
        """Bytes since the last head or body; many of them are an endless header, trailer or chunk extension."""
        self._header_bytes = 0
        self._header_count = 0
        self._new_headers: dict[str, str] = {}

    @property
    def reusable(self) -> bool:
        """Whether another request can be sent: the last response is complete and the connection stays open."""
        fully_read = self.complete and not self._paused
        return fully_read and self._keep and self._transport is not None and not self._transport.is_closing()

    @property
    def content_type(self) -> str:
        """Media type such as application/json; empty if the header is missing."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def send(self, head: bytes, body: bytes = b"") -> None:
        self.status = 0
        self.headers = {}
        self.complete = False
        self._failure = None
        self._pieces = []
        self._unread = self._read = 0
        self._unparsed = self._header_bytes = self._header_count = 0
        if self._transport is None:
            self._fail(ProviderUnreachable, "the connection broke off")
        else:
            self._transport.writelines([head, body] if body else [head])  # a large body is not copied

    async def read_head(self) -> None:
        """Wait for status and headers.

        Raises:
            ProviderUnreachable: the connection was lost before.
            ProviderProtocolError: the response is not HTTP.
        """
        while not self.status:
            await self._wait()

    async def read(self) -> bytes:
        """The part of the body that arrived since the last call; empty at the end.

        Raises:
            ProviderUnreachable: the connection was lost before the end.
            ProviderProtocolError: the response is not HTTP, or larger than `MAX_BODY_BYTES`.
        """
        while not self._pieces:
            if self.complete:
                return b""
            await self._wait()
        self._read += self._unread
        if self._read > MAX_BODY_BYTES:
            reason = f"the answer is larger than {MAX_BODY_BYTES} bytes"
            raise self._errors.create(ProviderProtocolError, reason, retryable=False, local=True)
        pieces, self._pieces, self._unread = self._pieces, [], 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def read_all(self, limit: int = MAX_BODY_BYTES) -> bytes:
        """The rest of the body, at most `limit` bytes."""
        pieces = []
        while limit > 0 and (piece := await self.read()):
            pieces.append(piece[:limit])
            limit -= len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        """Close the connection at once, even if the response is incomplete."""
        if self._transport is not None:
            self._transport.abort()

    async def _wait(self) -> None:
        if self._failure is not None:
            raise self._errors.create(*self._failure)
        self._changed.clear()
        await self._changed.wait()

    def _finish(self) -> None:
        if self._failure is None:
            self.complete = True
            self._changed.set()

    def _fail(self, kind: type[ProviderError], reason: str) -> None:
        if not self.complete and self._failure is None:
            self._failure = kind, reason
            self._changed.set()

    # ── asyncio.Protocol ────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport is not a subclass

    def data_received(self, data: bytes) -> None:
        if self.complete:  # data without a request
            self.close()
            return
        self._unparsed += len(data)
        try:
            self._parser.feed_data(data)
            valid = self._unparsed <= _MAX_HEADER_BYTES
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            valid = False
        if not valid:
            self._keep = False
            self._fail(ProviderProtocolError, "the response is not valid HTTP; check base_url")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the response, including one without a declared length."""
        self._transport = None
        if self.status and exc is None and not {"content-length", "transfer-encoding"} & self.headers.keys():
            self._finish()
        elif self.status:
            self._fail(ProviderUnreachable, "the answer broke off before it was complete")
        else:
            self._fail(ProviderUnreachable, "the connection broke off")

    # ── httptools callbacks ─────────────────────────────────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        """Begin a response; a second one to the same request ends the reuse of the connection."""
        self._new_headers = {}
        if self.complete:
            self._keep = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header, or count a trailer."""
        self._header_bytes += len(name) + len(value)
        self._header_count += 1
        if self._header_bytes > _MAX_HEADER_BYTES or self._header_count > _MAX_HEADERS:
            raise ValueError  # the parser ends, and `data_received` reports it
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        headers = self._new_headers
        headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        """Publish status and headers, except those of a 1xx response."""
        status = self._parser.get_status_code()
        if status >= 200 and not self.complete:
            self.headers = self._new_headers
            self.status = status
            self._new_headers = {}  # receives trailers, which are not published
            self._unparsed = 0
            self._changed.set()

    def on_body(self, body: bytes) -> None:
        """Store a piece of the body; pause reading if too much is unread."""
        self._unparsed = 0
        if self.complete or not self.status:
            return
        self._pieces.append(body)
        self._unread += len(body)
        self._changed.set()
        if self._unread > _MAX_UNREAD_BYTES and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """Complete the response, unless it was a 1xx one."""
        if self.status and not self.complete:
            self._keep = self._parser.should_keep_alive()
            self._unparsed = 0
            self._finish()


class Address(NamedTuple):
    """A server and the part of the URL that precedes every path."""

    host: str
    port: int
    secure: bool
    path: str
    query: str
    authority: str
    """Host and port for the Host header."""
    credentials: str
    """The `user:password@` of the URL in base64, for a Basic header; empty if missing."""

    @classmethod
    def parse(cls, url: str) -> Address:
        """Parse an http(s) URL.

        Raises:
            ValueError: the URL is invalid.

        >>> Address.parse("https://api.example.com/v1/")[:4]
        ('api.example.com', 443, True, '/v1')
        >>> Address.parse("localhost:8080")
        Traceback (most recent call last):
        ValueError: not an http(s) address
        """
        parts = urlsplit(url)
        host = parts.hostname
        port = parts.port
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

    def head(self, method: str, path: str, headers: Mapping[str, str], length: int = 0) -> bytes:
        r"""The head of a request with a body of this length. Its headers must hold no line breaks.

        >>> Address.parse("http://h:1/v1").head("POST", "/chat", {"x-a": "b"}, 2)
        b'POST /v1/chat HTTP/1.1\r\nhost: h:1\r\nx-a: b\r\ncontent-length: 2\r\n\r\n'
        """
        target = self.path + _quoted(path)
        if self.query:
            target += f"{'&' if '?' in path else '?'}{self.query}"
        default = {"host": self.authority}
        if self.credentials and "authorization" not in headers:
            default["authorization"] = f"Basic {self.credentials}"
        lines = [f"{name}: {value}" for name, value in {**default, **headers, "content-length": length}.items()]
        return "\r\n".join([f"{method} {target} HTTP/1.1", *lines, "", ""]).encode()


@lru_cache(maxsize=64)
def _quoted(path: str) -> str:
    return quote(path, safe=_SAFE + "?")


@cache
def default_tls() -> SSLContext:
    """A context with the system's CAs; OpenSSL reads SSL_CERT_FILE and SSL_CERT_DIR."""
    import ssl

    return ssl.create_default_context()


def proxy_for(address: Address, errors: ErrorFactory) -> Address | None:
    """The proxy for a server by HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, or None.

    Raises:
        ProviderUnreachable: the variable is not an http:// address.
    """
    from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed lacks the second

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
        raise errors.not_sent(f"{name.upper()}_PROXY is not an http:// address of a proxy", retryable=False)
    return proxy


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


class Connections:
    """The connections of one event loop to one address, through a proxy if the environment names one.

    Raises:
        ProviderUnreachable: the proxy variable is invalid.
    """

    def __init__(self, address: Address, errors: ErrorFactory, tls: SSLContext | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.address = address
        self.proxy = proxy_for(address, errors)
        self._errors = errors
        self._tls = tls
        self._proxy_headers: dict[str, str] = {}
        if self.proxy is not None and self.proxy.credentials:
            self._proxy_headers["proxy-authorization"] = f"Basic {self.proxy.credentials}"
        self._target = address
        self._headers: dict[str, str] = {}
        if self.proxy is not None and not address.secure:  # the request line names the server for the proxy
            self._target = address._replace(path=f"http://{address.authority}{address.path}")
            self._headers = self._proxy_headers
        self._free = asyncio.Semaphore(server_connections())
        self._idle: dict[Connection, asyncio.TimerHandle] = {}
        """Connections with their expiry timers, in order of last use; the last is the least likely to be closed."""

    @asynccontextmanager
    async def request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> AsyncIterator[Connection]:
        """Send a request on an idle or a new connection; yield the connection after the head of the response.

        A connection whose response was read to its end is kept; any other is closed, so that the server stops.

        Raises:
            ProviderUnreachable: the server cannot be reached or is not trusted, or the connection was lost.
            ProviderProtocolError: the response is not HTTP.
        """
        async with self._free:  # beyond the limit requests wait; their timeouts run
            connection = await self._acquire()
            try:
                connection.send(self._target.head(method, path, {**headers, **self._headers}, len(body)), body)
                await connection.read_head()
                yield connection
            finally:
                if connection.reusable:
                    self._idle[connection] = self.loop.call_later(KEEP_ALIVE_S, self._expire, connection)
                else:
                    connection.close()

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            connection, expiry = self._idle.popitem()
            expiry.cancel()
            connection.close()

    async def _acquire(self) -> Connection:
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

        secure = self.address.secure
        server = f"{self.address.host}:{self.address.port}"
        host, port = (self.proxy or self.address)[:2]
        try:
            # a socket to the server or its proxy
            addresses = await self.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            raw = await start_connection(
                addresses, happy_eyeballs_delay=_NEXT_ADDRESS_S, interleave=1, loop=self.loop
            )
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.proxy is not None and secure:
                await self._tunnel(raw)
            # TLS with the server, also behind a proxy
            context = (self._tls or default_tls()) if secure else None
            _, connection = await self.loop.create_connection(
                lambda: Connection(self._errors),
                sock=raw,
                ssl=context,
                server_hostname=self.address.host if secure else None,
            )
        except SSLError:
            remedy = "name its CA in SSL_CERT_FILE or in the provider's ca_file"
            raise self._errors.not_sent(
                f"no trusted TLS connection to {server}; {remedy}", retryable=False
            ) from None
        except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
            raise self._unreachable(error) from None
        return connection

    def _unreachable(self, error: OSError | UnicodeError) -> ProviderUnreachable:
        """The error for a connection that was not opened, with what to check."""
        cause = getattr(error, "strerror", None) or type(error).__name__
        code = getattr(error, "errno", None)
        server = f"{self.address.host}:{self.address.port}"
        if code in (errno.EMFILE, errno.ENFILE):
            LOG.error("no connection to a model server can be opened: %s; raise ulimit -n", cause)
            reason = f"cannot connect to {server}: {cause} on this machine"
        else:
            what = f"the proxy {self.proxy.host}:{self.proxy.port}" if self.proxy else server
            check = "the proxy variables" if self.proxy else "base_url"
            if isinstance(error, socket.gaierror):
                check = f"the network connection, and {check}"
            reason = f"cannot connect to {what} ({cause}); check {check}"
        return self._errors.not_sent(reason, local=code in _LOCAL_ERRORS)

    async def _tunnel(self, raw: socket.socket) -> None:
        """Open a tunnel to the server through the proxy (CONNECT); close the socket on failure.

        Raises:
            ProviderUnreachable: the proxy refuses.
            OSError: the proxy closes the connection, or its response is too long.
        """
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        server = f"{host}:{self.address.port}"
        lines = [f"{name}: {value}" for name, value in {"host": server, **self._proxy_headers}.items()]
        head = b""
        try:
            request = "\r\n".join([f"CONNECT {server} HTTP/1.1", *lines, "", ""])
            await self.loop.sock_sendall(raw, request.encode())
            while b"\r\n\r\n" not in head:  # only an error has a body: behind a tunnel the client speaks first
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
                raise self._errors.not_sent(f"the proxy {answer} for {server}; {remedy}", retryable=status >= 500)
        except BaseException:
            raw.close()
            raise
