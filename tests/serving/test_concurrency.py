from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.errors import KeyRefused
from odar.serving.concurrency import RETRY_S, ConcurrencyLimit
from odar.serving.errors import ApiError
from support.live_gateway import api_key


@given(st.integers(1, 8), st.lists(st.booleans(), max_size=40))
def test_in_flight_requests_never_exceed_the_limit(limit, arrivals):
    limiter, in_flight = ConcurrencyLimit(limit), 0
    for arrives in arrivals:
        if not arrives:
            if in_flight:
                limiter.release()
                in_flight -= 1
        elif in_flight < limit:
            limiter.acquire()
            in_flight += 1
        else:
            with pytest.raises(ApiError) as raised:
                limiter.acquire()
            assert (raised.value.status, raised.value.code) == (429, "overloaded")
        assert limiter.in_flight == in_flight <= limit


def test_draining_rejects_new_requests_and_lets_running_ones_finish():
    limiter = ConcurrencyLimit(2)
    limiter.acquire()
    limiter.draining = True
    with pytest.raises(ApiError) as raised:
        limiter.acquire()
    assert (raised.value.status, raised.value.code, raised.value.retry_after) == (503, "draining", RETRY_S)
    limiter.release()
    assert limiter.in_flight == 0


@given(st.integers(1, 12), st.lists(st.sampled_from("abc"), max_size=40))
def test_a_key_leaves_as_many_slots_as_it_holds(limit, arrivals):
    limiter, held = ConcurrencyLimit(limit), Counter()
    for id_ in arrivals:
        free = limit - held.total()
        if held[id_] < free:
            limiter.acquire(api_key(id_, id_))
            held[id_] += 1
        else:
            with pytest.raises(ApiError):
                limiter.acquire(api_key(id_, id_))
    assert limiter.in_flight == held.total()
    for id_ in held.elements():
        limiter.release(api_key(id_, id_))
    assert limiter.in_flight == 0


def test_limits_of_a_key_are_checked_at_the_headers():
    now = [0.0]
    limiter = ConcurrencyLimit(100, lambda: now[0])
    one, few = api_key("one", "1", max_parallel=1), api_key("few", "2", rate_per_min=2)
    limiter.acquire(one)
    with pytest.raises(KeyRefused, match="1 requests at a time"):
        limiter.acquire(one)
    for _ in range(2):
        limiter.acquire(few)
        limiter.release(few)
    with pytest.raises(KeyRefused, match="2 requests a minute") as raised:
        limiter.acquire(few)
    assert (raised.value.retry_after, limiter.in_flight) == (30, 1)
    now[0] = 30.0
    limiter.acquire(few)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 60)), max_size=40))
def test_a_key_leaves_as_many_bytes_as_it_holds(arrivals):
    limiter, held = ConcurrencyLimit(1000, max_bytes=100), Counter()
    for id_, size in arrivals:
        free = 100 - held.total()
        if size <= free and (not held[id_] or held[id_] + size <= free):
            limiter.hold_memory(api_key(id_, id_), size)
            held[id_] += size
        else:
            with pytest.raises(ApiError) as raised:
                limiter.hold_memory(api_key(id_, id_), size)
            assert (raised.value.status, raised.value.code) == (429, "overloaded")
    for id_, size in held.items():
        limiter.acquire(api_key(id_, id_))
        limiter.release(api_key(id_, id_), size)
    limiter.hold_memory(api_key("d", "d"), 5000)  # nothing else is in memory


def test_requests_of_this_machine_share_all_bytes():
    limiter = ConcurrencyLimit(1000, max_bytes=100)
    limiter.hold_memory(None, 60)
    limiter.hold_memory(None, 40)
    with pytest.raises(ApiError, match="max_body_mb"):
        limiter.hold_memory(None, 1)
