from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.gateway.access import RETRY_S, ConcurrencyLimit
from odar.gateway.errors import ApiError


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
