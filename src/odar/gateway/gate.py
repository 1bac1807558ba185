"""The gate: how many requests are inside, whether one more may come in, and who may knock at all."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from odar.gateway.errors import ApiError
from odar.gateway.ports import ApiKey, Keyring

RETRY_S = 1.0
"""What a client that is shed is told to wait: load passes quickly or not at all."""

Headers = Iterable[tuple[bytes, bytes]]


class Gate:
    """Counts requests in flight and refuses what is too much, before a byte of the body is read.

    >>> gate = Gate(limit=1)
    >>> gate.enter()
    >>> gate.in_flight
    1
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_flight = 0
        self.draining = False

    def enter(self) -> None:
        """Come in, or be told why not."""
        if self.draining:
            raise ApiError(503, "the gateway is shutting down", "draining", retry_after=RETRY_S)
        if self.in_flight >= self.limit:
            message = f"{self.limit} requests are in flight, which is the most gateway.max_in_flight allows"
            raise ApiError(429, message, "overloaded", retry_after=RETRY_S)
        self.in_flight += 1

    def leave(self) -> None:
        """Make room for another."""
        self.in_flight -= 1


def identify(headers: Headers, keys: Keyring) -> ApiKey | None:
    """The grant behind a request's key; None where no keys exist and the request is from this machine."""
    found = {name: value for name, value in headers if name in _WANTED}
    if keys.empty():
        _check_local(found)
        return None
    secret = found.get(b"x-api-key", b"")
    scheme, _, token = found.get(b"authorization", b"").partition(b" ")
    if not secret and scheme.lower() == b"bearer":
        secret = token.strip()
    if not secret:
        raise ApiError(401, "no key: send it as `Authorization: Bearer …` or `x-api-key: …`", "missing_api_key")
    grant = keys.verify(secret.decode("latin-1"))
    if grant is None:
        raise ApiError(401, "this key is not known here; `odar keys` makes one", "invalid_api_key")
    return grant


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only.

    >>> [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "example.com", "")]
    [True, True, True, False, False, False]
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_WANTED = frozenset({b"authorization", b"x-api-key", b"host", b"origin"})


def _check_local(headers: dict[bytes, bytes]) -> None:
    """Without keys anybody on this machine may ask, but not a web page that their browser happens to show."""
    for name, prefix in ((b"host", "//"), (b"origin", "")):
        value = headers.get(name)
        if value is None or (name == b"host" and value.startswith((b"127.0.0.1:", b"localhost:"))):
            continue
        try:
            host = urlsplit(prefix + value.decode("latin-1")).hostname or ""
        except ValueError:
            host = ""
        if not is_loopback(host):
            message = (
                f"without keys only this machine may ask, not {name.decode()} {host or 'unknown'!r}; make a key"
            )
            raise ApiError(403, f"{message} with `odar keys`", "loopback_only")
