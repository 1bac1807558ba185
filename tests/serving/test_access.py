"""Access to the gateway: with a key, or from this machine if no key is required."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.errors import SettingsError
from odar.serving.access import AccessPolicy, check_binding, is_loopback
from odar.serving.errors import ApiError
from odar.serving.keys import NO_KEY, KeyCache
from odar.settings import GatewaySettings
from support.live_gateway import api_key

ANN = api_key("key_1", "odar-ann-é")


def ring(*keys):
    """Return a key cache with these keys."""
    cache = KeyCache()
    cache.load(keys)
    return cache


def request(*headers, peer="127.0.0.1"):
    return {"headers": list(headers), "client": (peer, 50000)}


def policy(keys=None, **settings):
    return AccessPolicy(ring() if keys is None else keys, GatewaySettings(**settings))


def identify(headers, keys):
    return policy(keys).identify(request(*headers))


SECRET = "odar-ann-é".encode("latin-1")
KNOWN = [
    [(b"authorization", b"Bearer " + SECRET)],
    [(b"authorization", b"bearer   " + SECRET + b" ")],
    [(b"x-api-key", SECRET)],
    [(b"x-api-key", SECRET), (b"authorization", b"Bearer other")],
    [(b"x-api-key", b""), (b"authorization", b"Bearer " + SECRET)],
    [(b"x-api-key", SECRET), (b"origin", b"https://evil.example")],  # a key is enough, wherever it comes from
]
UNKNOWN = [
    ([], "missing_api_key"),
    ([(b"x-api-key", b"")], "missing_api_key"),
    ([(b"authorization", b"")], "missing_api_key"),
    ([(b"authorization", b"Bearer ")], "missing_api_key"),
    ([(b"authorization", b"Basic " + SECRET)], "missing_api_key"),
    ([(b"authorization", SECRET)], "missing_api_key"),
    ([(b"x-api-key", SECRET + b"x")], "invalid_api_key"),
    ([(b"x-api-key", b"\xff\x00")], "invalid_api_key"),
    ([(b"authorization", b"Bearer " + SECRET.upper())], "invalid_api_key"),
]


@pytest.mark.parametrize("headers", KNOWN)
def test_a_key_is_read_from_both_headers(headers):
    assert identify(headers, ring(ANN)) is ANN


@pytest.mark.parametrize(("headers", "code"), UNKNOWN)
def test_missing_and_unknown_keys_are_rejected(headers, code):
    with pytest.raises(ApiError) as raised:
        identify(headers, ring(ANN))
    assert (raised.value.status, raised.value.code) == (401, code)
    assert "odar-ann" not in str(raised.value)


@pytest.mark.parametrize(
    "headers",
    [
        [(b"host", b"127.0.0.1:8000")],
        [(b"host", b"localhost:8000")],
        [(b"host", b"[::1]:8000"), (b"origin", b"http://localhost:8000")],
        [(b"host", b"127.8.9.1")],
        [(b"host", b"localhost"), (b"origin", b"http://127.0.0.1:9")],
        [(b"host", b"localhost:8000"), (b"authorization", b"Bearer any")],
    ],
)
def test_without_keys_this_machine_has_access(headers):
    assert identify(headers, ring()) is NO_KEY


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"host", b"example.com")],
        [(b"host", b"localhost"), (b"host", b"example.com")],
        [(b"host", b"localhost"), (b"host", b"localhost")],
        [(b"host", b"10.0.0.1:8000")],
        [(b"host", b"0.0.0.0:8000")],
        [(b"host", b"localhost.evil.example")],
        [(b"host", b"127.0.0.1.evil.example")],
        [(b"host", b"")],
        [(b"host", b"[::1")],
        [(b"host", b"localhost:8000"), (b"origin", b"https://evil.example")],
        [(b"host", b"localhost:8000"), (b"origin", b"null")],
        [(b"host", b"localhost:8000"), (b"origin", b"http://localhost@evil.example")],
        [(b"host", b"\xff\xfe")],
        [(b"host", b"localhost:8000"), (b"x-forwarded-for", b"127.0.0.1")],
        [(b"host", b"localhost:8000"), (b"x-forwarded-proto", b"http")],
        [(b"host", b"localhost:8000"), (b"forwarded", b"for=127.0.0.1")],
        [(b"host", b"localhost:8000"), (b"via", b"1.1 proxy")],
        [(b"host", b"localhost:8000"), (b"x-real-ip", b"127.0.0.1")],
    ],
)
def test_without_keys_other_machines_and_web_pages_are_rejected(headers):
    with pytest.raises(ApiError) as raised:
        identify(headers, ring())
    assert (raised.value.status, raised.value.code) == (403, "loopback_only")
    assert "odar keys" in raised.value.message


@given(st.text(max_size=30))
def test_is_loopback_never_raises(host):
    assert is_loopback(host) in (True, False)
    if is_loopback(host):
        assert host == "localhost" or host.startswith(("127.", "::1", "::ffff:127.")) or ":" in host


LOCAL = (b"host", b"localhost:8088")


@pytest.mark.parametrize("peer", ["10.0.0.7", "192.168.1.2", "::ffff:10.0.0.7", "2001:db8::1", ""])
def test_without_keys_a_local_host_header_does_not_make_another_machine_local(peer):
    with pytest.raises(ApiError) as raised:
        policy().identify(request(LOCAL, peer=peer))
    assert (raised.value.status, raised.value.code) == (403, "loopback_only")


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"])
def test_without_keys_every_address_of_this_machine_is_local(peer):
    assert policy().identify(request(LOCAL, peer=peer)) is NO_KEY


def refused(policy: AccessPolicy, *headers) -> str:
    with pytest.raises(ApiError) as raised:
        policy.identify(request(LOCAL, *headers))
    assert raised.value.status == 401
    return raised.value.code


def test_revoking_the_last_key_does_not_open_the_gateway():
    keys = ring(api_key("k", "only"))
    access = policy(keys)
    keys.load([])
    assert refused(access) == "missing_api_key"
    assert refused(access, (b"x-api-key", b"only")) == "invalid_api_key"


def test_a_key_that_is_made_later_is_required_from_then_on():
    keys = ring()
    access = policy(keys)
    assert access.identify(request(LOCAL)) is NO_KEY
    keys.load([first := api_key("k", "first")])
    assert refused(access) == "missing_api_key"
    assert access.identify(request(LOCAL, (b"x-api-key", b"first"))) is first
    keys.load([])
    assert refused(access) == "missing_api_key"


@pytest.mark.parametrize("settings", [{"require_keys": True}, {"host": "0.0.0.0"}])
def test_keys_are_required_by_a_setting_or_a_public_address(settings):
    assert refused(policy(**settings)) == "missing_api_key"


def test_without_keys_only_loopback_is_bound():
    check_binding(ring(), GatewaySettings())
    check_binding(ring(ANN), GatewaySettings(host="0.0.0.0"))
    check_binding(ring(), GatewaySettings(host="0.0.0.0", require_keys=True))
    with pytest.raises(SettingsError, match=r"'0\.0\.0\.0' can be reached from other machines.*odar keys"):
        check_binding(ring(), GatewaySettings(host="0.0.0.0"))
    with pytest.raises(SettingsError, match=r"require_keys = false"):
        check_binding(ring(ANN), GatewaySettings(host="0.0.0.0", require_keys=False))


@pytest.mark.parametrize(
    ("peer", "headers", "readable"),
    [
        ("127.0.0.1", [LOCAL], False),  # perhaps a proxy that adds no header
        ("10.1.2.3", [(b"host", b"10.9.9.9:8088")], True),  # a scraper that addresses the pod by its IP
        ("::ffff:10.1.2.3", [(b"host", b"10.9.9.9:8088")], True),
        ("192.0.2.9", [(b"host", b"10.9.9.9:8088")], True),
        ("192.0.2.8", [LOCAL], False),
        ("127.0.0.1", [(b"host", b"evil.example")], False),
        ("127.0.0.1", [LOCAL, (b"x-forwarded-for", b"127.0.0.1")], False),
        ("10.1.2.3", [LOCAL, (b"x-forwarded-for", b"1.2.3.4")], False),
        ("192.0.2.8", [LOCAL, (b"x-api-key", b"known")], True),
        ("192.0.2.8", [LOCAL, (b"x-api-key", b"unknown")], False),
        ("", [LOCAL], False),
    ],
)
def test_access_to_metrics(peer, headers, readable):
    access = policy(ring(api_key("k", "known")), metrics_allow=("10.0.0.0/8", "192.0.2.9"))
    if readable:
        access.check_metrics(request(*headers, peer=peer))
        return
    with pytest.raises(ApiError) as raised:
        access.check_metrics(request(*headers, peer=peer))
    assert raised.value.status == 401
    assert "metrics_allow" in raised.value.message


def test_without_keys_this_machine_reads_metrics():
    policy().check_metrics(request(LOCAL))
    with pytest.raises(ApiError):
        policy().check_metrics(request(LOCAL, peer="192.0.2.8"))


@pytest.mark.parametrize("entry", ["prometheus", "10.0.0.0/33", "10.0.0.1/8", ""])
def test_an_invalid_network_is_rejected_at_startup(entry):
    with pytest.raises(SettingsError, match="metrics_allow"):
        policy(metrics_allow=(entry,))
