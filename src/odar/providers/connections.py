"""Connections to one server, direct or through a proxy: opened when needed, kept for a while, never queued for."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import socket
from collections import deque
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from odar.providers.connection import Connection, HttpResponse

if TYPE_CHECKING:
    from ssl import SSLContext

_PORTS = {"http": 80, "https": 443}
_SAFE = "%/:@!$&'()*+,;=~-._"  # what may stand in a path as it is; a blank or a line break may not
KEPT_S = 15.0
"""An idle connection is kept so long; servers close theirs after some time, and tell nobody before."""
_MAX_TUNNEL_HEAD = 16 * 2**10
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
        target = self.path + _quoted(path) + (f"?{self.query}" if self.query else "")
        own = {"host": self.authority}
        if self.credentials and "authorization" not in headers:
            own["authorization"] = f"Basic {self.credentials}"
        lines = [f"{name}: {value}" for name, value in {**own, **headers, "content-length": len(body)}.items()]
        return "\r\n".join([f"{method} {target} HTTP/1.1", *lines, "", ""]).encode() + body


@lru_cache(maxsize=64)
def _quoted(path: str) -> str:
    return quote(path, safe=_SAFE)


class TlsFiles(NamedTuple):
    """PEM files for connections to a server; empty for the system's CAs and no client certificate."""

    ca_file: str = ""
    client_cert: str = ""
    client_key: str = ""
    """Empty if `client_cert` holds the key too."""


SYSTEM_TLS = TlsFiles()


@cache
def tls_context(files: TlsFiles) -> SSLContext:
    """Return what TLS connections are made with. OpenSSL reads SSL_CERT_FILE and SSL_CERT_DIR if no CA is named.

    Raises:
        OSError: a file cannot be read, or holds something else (`ssl.SSLError`).
    """
    import ssl

    context = ssl.create_default_context(cafile=files.ca_file or None)
    if files.client_cert:  # a password, or OpenSSL would ask for that of an encrypted key on the terminal
        context.load_cert_chain(files.client_cert, files.client_key or None, password="")
    return context


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


class Unconnected(Exception):
    """No connection came about."""

    def __init__(self, why: str, *, retryable: bool = True) -> None:
        super().__init__(why)
        self.retryable = retryable


class Connections:
    """The connections of one event loop to one address, through a proxy if the environment names one for it.

    Raises:
        Unconnected: what the environment names is no proxy.
    """

    def __init__(self, address: Address, tls: TlsFiles = SYSTEM_TLS) -> None:
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
        self._idle: deque[tuple[float, Connection]] = deque()
        """The one used last at the end: it is the likeliest to live."""
        self._sweeping: asyncio.TimerHandle | None = None

    def asked(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Asked:
        """A context with the answer to a request, its head read.

        Raises on entry:
            Unconnected: the server cannot be reached, or not be trusted.
            Broken: the connection broke off.
            NotHttp: what came is no answer.
        """
        if self._headers:
            headers = {**headers, **self._headers}
        return Asked(self, self._target.request(method, path, headers, body))

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

        secure, server = self.address.secure, f"{self.address.host}:{self.address.port}"
        host, port = (self.proxy or self.address)[:2]
        try:
            found = await self.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            raw = await start_connection(found, happy_eyeballs_delay=_NEXT_ADDRESS_S, interleave=1, loop=self.loop)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.proxy is not None and secure:
                await self._tunnel(raw)
            context = tls_context(self._tls) if secure else None
            _, connection = await self.loop.create_connection(
                Connection, sock=raw, ssl=context, server_hostname=self.address.host if secure else None
            )
        except SSLError:
            remedy = "name its CA in SSL_CERT_FILE or in the provider's ca_file"
            raise Unconnected(f"no trusted TLS connection to {server}; {remedy}", retryable=False) from None
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that is none
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


class Asked:
    """One request on a connection of its own; the connection is given back when the context ends."""

    def __init__(self, connections: Connections, request: bytes) -> None:
        self._connections = connections
        self._request = request

    async def __aenter__(self) -> HttpResponse:
        self._connection = connection = await self._connections.take()
        try:
            answer = connection.ask(self._request)
            await answer.head()
        except BaseException:
            self._connections.give(connection)
            raise
        return answer

    async def __aexit__(self, *exception: object) -> None:
        self._connections.give(self._connection)
