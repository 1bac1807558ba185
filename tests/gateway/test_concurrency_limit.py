from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.gateway.access import RETRY_S, Gate
from odar.gateway.errors import ApiError


@given(st.integers(1, 8), st.lists(st.booleans(), max_size=40))
def test_in_flight_requests_never_exceed_the_limit(limit, comings):
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


def test_draining_rejects_new_requests_and_lets_running_ones_finish():
    gate = Gate(2)
    gate.enter()
    gate.draining = True
    with pytest.raises(ApiError) as raised:
        gate.enter()
    assert (raised.value.status, raised.value.code, raised.value.retry_after) == (503, "draining", RETRY_S)
    gate.leave()
    assert gate.in_flight == 0
