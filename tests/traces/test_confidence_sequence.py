"""Intervals that hold at every time at once (SPEC 10.4)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.traces.confidence_sequence import Differences, betting_interval, lower_bound

STREAMS = 1000
QUESTIONS = 1000
LOOKS = range(20, QUESTIONS + 1, 20)


def streams(cascade: float, slow: float, seed: int) -> list[list[Differences]]:
    """Comparisons after each look, for streams in which cascade and slow's second answer differ that often."""
    draws = np.random.default_rng(seed).random((STREAMS, QUESTIONS, 2)) < (cascade, slow)
    both = draws[..., 0] == draws[..., 1]
    counts = np.stack([draws[..., 0] & ~both, draws[..., 1] & ~both, both], -1).cumsum(1)  # (streams, questions, 3)
    return [[Differences(*map(int, each[look - 1])) for look in LOOKS] for each in counts]


@pytest.mark.parametrize(("cascade", "slow"), [(0.12, 0.10), (0.02, 0.0), (0.32, 0.30)])
def test_few_false_alarms_at_the_limit(cascade: float, slow: float) -> None:
    alarms = sum(any(each.exceeds(0.02) for each in stream) for stream in streams(cascade, slow, seed=7))
    assert alarms <= 0.05 * STREAMS


def test_an_excess_is_noticed() -> None:
    noticed = [
        next((look for look, each in zip(LOOKS, stream, strict=True) if each.exceeds(0.02)), None)
        for stream in streams(0.17, 0.05, seed=8)[:200]
    ]
    assert all(noticed)


def test_the_interval_holds_at_all_times() -> None:
    draws = np.random.default_rng(9).random((300, 400)) < 0.9
    missed = 0
    for stream in draws.cumsum(1):
        found = [
            betting_interval({1.0: int(stream[n - 1]), 0.0: n - int(stream[n - 1])}) for n in range(20, 401, 20)
        ]
        missed += any(not each.low <= 0.9 <= each.high for each in found)
    assert missed <= 0.05 * len(draws)


@given(st.integers(0, 500), st.integers(0, 500), st.integers(0, 500))
def test_bounds_are_in_order_and_include_the_mean(one: int, other: int, same: int) -> None:
    found = Differences(one, other, same).excess()
    assert -1 <= found.low <= found.high <= 1
    if found.mean is None:
        assert (found.low, found.high) == pytest.approx((-1, 1)), "nothing is known without a question"
    else:
        assert found.low - 1e-9 <= found.mean <= found.high + 1e-9


@given(st.integers(0, 300), st.integers(0, 300), st.floats(-0.5, 0.5))
def test_a_limit_is_exceeded_where_the_lower_bound_is_above_it(one: int, other: int, limit: float) -> None:
    comparison = Differences(one, other, 100)
    bound = lower_bound({1.0: one, -1.0: other, 0.0: 100}, -1.0, 1.0)
    if abs(bound - limit) > 1e-6:
        assert comparison.exceeds(limit) == (bound > limit)


def test_more_questions_narrow_the_interval() -> None:
    widths = [
        found.high - found.low
        for found in (betting_interval({1.0: 9 * size, 0.0: size}) for size in (1, 10, 100, 1000))
    ]
    assert all(wide > narrow for wide, narrow in itertools.pairwise(widths))
    assert betting_interval({}).mean is None
