from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.gateway.errors import ApiError
from odar.gateway.gate import RETRY_S, Gate, identify, is_loopback
from odar.gateway.ports import ApiKey, NoKeys

ANN = ApiKey("key_1", name="ann")


class OneKey(NoKeys):
    """Knows Ann's key."""

    def empty(self) -> bool:
        return False

    def verify(self, secret: str) -> ApiKey | None:
        return ANN if secret == "odar-ann-é" else None


@given(st.integers(1, 8), st.lists(st.booleans(), max_size=40))
def test_no_more_are_inside_than_there_is_room_for(limit, comings):
    gate, inside = Gate(limit), 0
    for comes in comings:
        if not comes:
            if inside:
                gate.leave()
                inside -= 1
        elif inside < limit:
            gate.enter()
            inside += 1
        else:
            with pytest.raises(ApiError) as raised:
                gate.enter()
            assert (raised.value.status, raised.value.code) == (429, "overloaded")
        assert gate.in_flight == inside <= limit


def test_nobody_comes_in_while_it_closes_and_everybody_may_leave():
    gate = Gate(2)
    gate.enter()
    gate.draining = True
    with pytest.raises(ApiError) as raised:
        gate.enter()
    assert (raised.value.status, raised.value.code, raised.value.retry_after) == (503, "draining", RETRY_S)
    gate.leave()
    assert gate.in_flight == 0


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
def test_a_key_is_found_wherever_clients_put_it(headers):
    assert identify(headers, OneKey()) is ANN


@pytest.mark.parametrize(("headers", "code"), UNKNOWN)
def test_without_a_key_that_is_known_nobody_is_anybody(headers, code):
    with pytest.raises(ApiError) as raised:
        identify(headers, OneKey())
    assert (raised.value.status, raised.value.code) == (401, code)
    assert "odar-ann" not in str(raised.value)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"host", b"127.0.0.1:8000")],
        [(b"host", b"localhost:8000")],
        [(b"host", b"[::1]:8000"), (b"origin", b"http://localhost:8000")],
        [(b"host", b"127.8.9.1")],
        [(b"host", b"localhost"), (b"origin", b"http://127.0.0.1:9")],
        [(b"authorization", b"Bearer any")],
    ],
)
def test_without_keys_this_machine_may_ask(headers):
    assert identify(headers, NoKeys()) is None


@pytest.mark.parametrize(
    "headers",
    [
        [(b"host", b"example.com")],
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
    ],
)
def test_without_keys_no_other_machine_and_no_other_page(headers):
    with pytest.raises(ApiError) as raised:
        identify(headers, NoKeys())
    assert (raised.value.status, raised.value.code) == (403, "loopback_only")
    assert "odar keys" in raised.value.message


@given(st.text(max_size=30))
def test_any_text_is_an_address_of_this_machine_or_not(host):
    assert is_loopback(host) in (True, False)
    if is_loopback(host):
        assert host == "localhost" or host.startswith(("127.", "::1", "::ffff:127.")) or ":" in host
