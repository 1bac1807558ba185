"""Checks of the URLs in a conversation (`gateway.image_urls`).

The gateway fetches no URL, but a model server that gets `http://169.254.169.254/…` as an image may fetch it, from a
network that the client cannot reach. URLs of private hosts are therefore rejected; a public name that resolves to a
private address must be blocked by the model server (docs/security.md).
"""

from __future__ import annotations

import ipaddress
import socket
import unicodedata
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from odar.serving.errors import bad_field
from odar.types import Query

_PRIVATE_SUFFIXES = (
    *("localhost", "local", "internal", "intranet", "lan", "home"),
    *("corp", "private", "arpa", "svc", "test"),
)
"""Last labels of host names that are not public."""
_URL_SCHEMES = ("http:", "https:", "ftp:", "file:", "s3:", "gs:")


def check_image_urls(query: Query, allowed: str) -> None:
    """Raise ApiError if a conversation has a URL that `gateway.image_urls` (public, any, none) does not allow."""
    if allowed == "any":
        return
    for url in _urls(query):
        if allowed == "none":
            raise bad_field("image_url", "URLs are not allowed (gateway.image_urls); send data:image/…;base64,…")
        if not is_public(url):
            raise bad_field("image_url", "the URL is not public (gateway.image_urls); send data:image/…;base64,…")


def is_public(url: str) -> bool:
    """Whether the host of a URL looks public; names are not resolved.

    >>> [is_public(url) for url in ("https://example.com/a.png", "http://127.1/", "http://intranet/", "file:///etc")]
    [True, False, False, False]
    """
    text = unicodedata.normalize("NFKC", url)  # resolvers read ① as 1
    if any(c.isspace() or not c.isprintable() or c == "\\" for c in text):  # parsers do not agree on these
        return False
    try:
        parts = urlsplit(text)
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not host:
        return False
    address = _parse_address(host)
    if address is not None:
        return address.is_global and not address.is_multicast
    last = host.rpartition(".")[2]
    return "." in host and last not in _PRIVATE_SUFFIXES and not last.isdigit()


def _parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address of a host in any notation that resolvers accept: 127.1, 0x7f000001, 2130706433."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except (OSError, UnicodeEncodeError):
            return None
    return getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None) or address


def _urls(query: Query) -> Iterator[str]:
    """Yield the URLs of images, and what looks like one in content that is forwarded unchanged, such as videos."""
    queue: list[Any] = []
    for message in query.messages:
        yield from (image.url for image in message.images if image.url is not None)
        if message.untranslated and message.wire is not None:
            queue.append(message.wire.value.get("content"))
    while queue:
        value = queue.pop()
        if isinstance(value, dict):
            if value.get("type") != "text":
                queue += value.values()
        elif isinstance(value, list):
            queue += value
        elif isinstance(value, str) and value.lower().startswith(_URL_SCHEMES):
            yield value
