from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.store.limiter import Bucket

rates = st.floats(0.1, 6000.0)
gaps = st.lists(st.floats(0.0, 300.0), max_size=60)


@given(rates, gaps)
def test_nobody_gets_more_than_the_rate_and_one_burst(rate, gaps):
    bucket, now, taken = Bucket(rate, now=0.0), 0.0, 0
    for gap in gaps:
        now += gap
        taken += bucket.take(now) == 0.0
        assert taken <= max(1.0, rate) + now * rate / 60 + 1e-6


@given(rates, gaps)
def test_who_waits_as_long_as_told_gets_through_and_who_comes_sooner_does_not(rate, gaps):
    bucket, now = Bucket(rate, now=0.0), 0.0
    for gap in gaps:
        now += gap
        if wait := bucket.take(now):
            assert 0 < wait <= 60 / rate + 1e-9
            assert bucket.take(now + 0.9 * wait) > 0
            now += wait
            assert bucket.take(now) == 0.0


@given(rates, st.floats(0.0, 1e6))
def test_a_quiet_time_gives_a_minutes_worth_and_no_more(rate, quiet):
    bucket = Bucket(rate, now=0.0)
    while bucket.take(0.0) == 0.0:
        pass
    now = max(60.0, 60 / rate) + quiet
    taken = 0
    while bucket.take(now) == 0.0:
        taken += 1
    assert taken == int(max(1.0, rate) + 1e-6)


@pytest.mark.parametrize("back", [1.0, 3600.0, 1e9])
def test_a_clock_that_is_set_back_neither_gives_nor_takes(back):
    bucket = Bucket(60, now=1e9)
    for _ in range(60):
        assert bucket.take(1e9) == 0.0
    assert bucket.take(1e9 - back) == pytest.approx(1.0)
    assert bucket.take(1e9 - back + 1.0) == 0.0
