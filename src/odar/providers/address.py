"""Where a base_url points: the host to connect to, and a request to it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

_PORTS = {"http": 80, "https": 443}
_SAFE = "%/:@!$&'()*+,;=~-._"  # what may stand in a path as it is; a blank or a line break may not


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
