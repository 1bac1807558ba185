"""Access control by API key or, if none is required, by local address.

If keys are required when the gateway starts, they stay required while it runs: revoking the last key, or an empty
database, leaves a gateway that rejects every request.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.types import Scope

from odar.errors import SettingsError
from odar.serving.errors import ApiError
from odar.serving.exchange import Headers
from odar.serving.keys import NO_KEY, RETRY_S, Key, KeyCache
from odar.serving.workers import Workers
from odar.settings import GatewaySettings

_PROXY_HEADERS = frozenset(
    b"""
    cdn-loop cf-connecting-ip cf-ray client-ip fastly-client-ip fly-client-ip forwarded proxy-client-ip
    true-client-ip via wl-proxy-client-ip x-appengine-user-ip x-azure-clientip x-client-ip x-cluster-client-ip
    x-envoy-external-address x-envoy-original-path x-host x-original-forwarded-for x-original-host x-original-url
    x-proxyuser-ip x-real-ip x-remote-addr x-remote-ip
    """.split()
)
"""Headers that only a proxy adds, in addition to those that start with `x-forwarded` or `forwarded-`."""


class AccessPolicy:
    """Identifies the sender of a request and decides whether it is answered.

    `workers` remember that a key is required, also for a worker that starts later.
    """

    def __init__(self, keys: KeyCache, settings: GatewaySettings, workers: Workers | None = None) -> None:
        self.keys = keys
        self._workers = workers or Workers()
        required = settings.require_keys
        if required is None:
            required = not is_loopback(settings.host)
        if required or len(keys):
            self._workers.require_keys()
        self._scraper_networks = tuple(map(_parse_network, settings.metrics_allow))

    @property
    def keys_required(self) -> bool:
        """Whether every request needs a key; the first key turns this on permanently."""
        if not self._workers.keys_required and len(self.keys):
            self._workers.require_keys()
        return self._workers.keys_required

    def identify(self, scope: Scope) -> Key:
        """The key of a request; `NO_KEY` if no key is required and the request is from this machine.

        Raises:
            ApiError: 401 without a valid key, 403 if no key is required but the request is not from this machine.
        """
        if self.keys_required:
            return self._verify_key(scope["headers"])
        if (reason := remote_reason(scope)) is not None:
            message = f"without API keys only this machine has access, not {reason}; make one with `odar keys`"
            raise ApiError(403, message, "loopback_only")
        return NO_KEY

    def check_metrics(self, scope: Scope) -> None:
        """Raise ApiError 401 unless the request is from `gateway.metrics_allow` or has a key.

        Without keys, this machine may read them too. With keys it is not enough: a proxy on this machine that adds
        no header looks the same.
        """
        address = parse_address(_peer(scope))
        proxied = any(_is_proxy_header(name) for name, _ in scope["headers"])
        if address is not None and not proxied and any(address in network for network in self._scraper_networks):
            return
        if not self.keys_required and remote_reason(scope) is None:
            return
        try:
            self._verify_key(scope["headers"])
        except ApiError as error:
            message = "/metrics needs a key, unless it is read from gateway.metrics_allow"
            raise ApiError(error.status, message, error.code) from None

    def _verify_key(self, headers: Headers) -> Key:
        by_name = dict(headers)
        secret = by_name.get(b"x-api-key", b"")
        scheme, _, token = by_name.get(b"authorization", b"").partition(b" ")
        if not secret and scheme.lower() == b"bearer":
            secret = token.strip()
        if not secret:
            raise ApiError(401, "no API key; send `Authorization: Bearer …` or `x-api-key: …`", "missing_api_key")
        key = self.keys.verify(secret.decode("latin-1"))
        if key is None and self.keys.lost:
            message = "no key can be checked: the gateway has lost its store; tell its operator"
            raise ApiError(503, message, "store_unavailable", retry_after=RETRY_S)
        if key is None:
            raise ApiError(401, "unknown API key; make one with `odar keys`", "invalid_api_key")
        return key


def check_binding(keys: KeyCache, settings: GatewaySettings) -> None:
    """Reject settings under which other machines could use a gateway without keys.

    Raises:
        SettingsError: the message says how to fix it.
    """
    if is_loopback(settings.host) or settings.require_keys:
        return
    open_to = f"gateway.host = {settings.host!r} can be reached from other machines"
    if settings.require_keys is False:
        raise SettingsError(f"{open_to}, and gateway.require_keys = false; leave it out, or listen on 127.0.0.1")
    if not len(keys):
        raise SettingsError(
            f"{open_to}, and no key is configured; make one with `odar keys`, or listen on 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only.

    >>> [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "example.com", "")]
    [True, True, True, False, False, False]
    """
    if host in ("127.0.0.1", "localhost"):
        return True
    address = parse_address(host)
    return address is not None and address.is_loopback


def remote_reason(scope: Scope) -> str | None:
    """Why a request is not from a program on this machine; None if it is.

    The peer's address, `Host` and `Origin` must be this machine's: a web page in a local browser has another
    origin, or another host after DNS rebinding. A request that a proxy forwarded comes from another machine.
    """
    if not is_loopback(peer := _peer(scope)):
        return f"address {peer!r}"
    hosts = 0
    for name, value in scope["headers"]:
        if name == b"host":
            hosts += 1
            if value.startswith((b"127.0.0.1:", b"localhost:")):
                continue  # the usual case, without parsing
            if not is_loopback(host := _hostname("//", value)):
                return f"host {host or 'unknown'!r}"
        elif name == b"origin" and not is_loopback(host := _hostname("", value)):
            return f"origin {host or 'unknown'!r}"
        elif _is_proxy_header(name):
            return f"a proxy ({name.decode('latin-1')})"
    return None if hosts == 1 else "a request without one Host header"


def _peer(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _is_proxy_header(name: bytes) -> bool:
    return name in _PROXY_HEADERS or name.startswith((b"x-forwarded", b"forwarded-"))


def _hostname(prefix: str, value: bytes) -> str:
    try:
        return urlsplit(prefix + value.decode("latin-1")).hostname or ""
    except ValueError:
        return ""


def parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address of a host, None for a name; an IPv4-mapped IPv6 address becomes an IPv4 address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _parse_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text.strip())
    except ValueError:
        raise SettingsError(
            f"gateway.metrics_allow: {text!r} is not an address or a network such as 10.1.2.3 or 10.0.0.0/8"
        ) from None
