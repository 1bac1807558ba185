"""The dial and its targets."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.errors import InputError
from odar.policy.dial import Dial, TargetState


def test_a_smaller_gain_is_bought_at_a_higher_value():
    values = [Dial.parse(name).value(0.01) for name in ("economy", "balanced", "quality")]
    assert values == sorted(values)
    assert Dial.parse("balanced").value(0.01) == pytest.approx(0.1)
    assert Dial.from_options(value_usd=0.5).value(0.01) == 0.5


@pytest.mark.parametrize("text", ["", "cheap", "0", "-3", "101", "nan"])
def test_a_dial_is_a_name_or_points(text):
    with pytest.raises(InputError, match="economy"):
        Dial.parse(text)


def test_a_dial_has_one_form():
    assert Dial.from_options() is None
    assert Dial.from_options(4).points == 4.0
    assert Dial.from_options(target_calls=1.5).target == "calls"
    with pytest.raises(InputError, match="dial and target_calls"):
        Dial.from_options("economy", target_calls=1.5)
    with pytest.raises(InputError, match="between 1 and 1000"):
        Dial.from_options(target_calls=0.5)


@pytest.mark.parametrize("number", [5e-324, 1e-308, 1e308, math.inf, math.nan, 0.0, -1.0])
@pytest.mark.parametrize("form", ["dial", "value_usd", "target_calls", "target_cost_usd"])
def test_numbers_that_would_overflow_are_refused(form, number):
    with pytest.raises(InputError):
        Dial.from_options(**{form: number})


@given(st.floats(1.1, 5.5), st.floats(0.05, 20), st.integers(0, 1000))
def test_the_controller_meets_a_mean_that_can_be_met(target, gain_per_call, seed):
    """Questions take six calls if V is above the price of their gain, else one."""
    state = TargetState()
    for i in range(600):
        worth = gain_per_call * math.exp(math.sin(seed + i * 2.399) * 2)
        state.count(6 if worth * state.factor(target) > 1 else 1, target)
    assert state.mean == pytest.approx(target, abs=0.35)


def test_a_target_out_of_reach_is_not_compensated_for_ever():
    state = TargetState()
    for _ in range(10_000):
        state.count(1.0, 5.0)
    assert state.factor(5.0) <= math.exp(10)
