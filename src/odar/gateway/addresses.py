"""Addresses in a conversation that an upstream would fetch, kept from pointing into the network it stands in.

The gateway fetches nothing. But a model server that is handed `http://169.254.169.254/…` as an image may, and it
stands where the client does not. What can be told from an address alone is refused here; a public name that leads
to an inner address is for the upstream's own rules to stop (docs/security.md).
"""

from __future__ import annotations

import ipaddress
import socket
import unicodedata
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from odar.conversation import Message
from odar.gateway.errors import bad_field
from odar.types import Query

_INNER = ("localhost", "local", "internal", "intranet", "lan", "home", "corp", "private", "arpa", "svc", "test")
"""Last parts of names that no public server has."""
_SCHEMES = ("http:", "https:", "ftp:", "file:", "s3:", "gs:")


def check_addresses(query: Query, allowed: str) -> None:
    """Refuse a conversation with an address that `gateway.image_urls` (public, any, none) does not allow."""
    if allowed == "any":
        return
    for url in _addresses(query):
        if allowed == "none":
            raise bad_field("image_url", "addresses are not allowed here; send data:image/…;base64,… instead")
        if not is_public(url):
            raise bad_field(
                "image_url", "the address is not a public one (gateway.image_urls); send the bytes instead"
            )


def is_public(url: str) -> bool:
    """Whether an address names a host on the open internet, as far as its text can tell.

    >>> [is_public(url) for url in ("https://example.com/a.png", "http://127.1/", "http://intranet/", "file:///etc")]
    [True, False, False, False]
    """
    text = unicodedata.normalize("NFKC", url)  # ① is 1 to a resolver
    if any(c.isspace() or not c.isprintable() or c == "\\" for c in text):  # parsers do not agree on these
        return False
    try:
        parts = urlsplit(text)
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not host:
        return False
    number = _number(host)
    if number is not None:
        return number.is_global and not number.is_multicast
    last = host.rpartition(".")[2]
    return "." in host and last not in _INNER and not last.isdigit()


def _number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host is, in any of the spellings that resolvers take: 127.1, 0x7f000001, 2130706433."""
    try:
        number = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except (OSError, UnicodeEncodeError):
            return None
    inner = getattr(number, "ipv4_mapped", None) or getattr(number, "sixtofour", None)
    return inner or number


def _addresses(query: Query) -> Iterator[str]:
    for message in query.messages:
        yield from (image.url for image in message.images if image.url is not None)
        if message.untranslated:
            yield from _inside(message)


def _inside(message: Message) -> Iterator[str]:
    """Whatever looks like an address in content that is passed on as it stands: videos, files, documents."""
    waiting: list[Any] = [] if message.wire is None else [message.wire.value.get("content")]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            if each.get("type") != "text":
                waiting += each.values()
        elif isinstance(each, list):
            waiting += each
        elif isinstance(each, str) and each.lower().startswith(_SCHEMES):
            yield each
