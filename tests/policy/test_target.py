"""Targets: the mean is met without labels, after a shift of the traffic and with concurrent questions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odar.errors import InputError
from odar.policy.target import Target, TargetController, TargetState, ThresholdPath
from odar.types import Path

PATH = ThresholdPath.through((0.3, 0.7))
shares = st.floats(0, 1)


def stream(controller: TargetController, difficulties: np.ndarray, in_flight: int = 0, seed: int = 0) -> np.ndarray:
    """Return the calls of each question. The Hard path takes four to six; the number is known only at the end."""
    rng, spent, waiting = np.random.default_rng(seed), [], []
    for d in difficulties:
        choice = controller.choose()
        path = Path.SIMPLE if d < choice.tau1 else Path.MEDIUM if d < choice.tau2 else Path.HARD
        actual = {Path.SIMPLE: 1, Path.MEDIUM: 2, Path.HARD: int(rng.integers(4, 7))}[path]
        waiting.append((path, controller.book(float(d), path), actual))
        spent.append(actual)
        if len(waiting) > in_flight:
            controller.settle(*waiting.pop(0))
    return np.array(spent, dtype=float)


@pytest.mark.parametrize(
    ("value", "after", "in_flight"), [(1.8, (5, 2), 0), (1.8, (1, 8), 20), (2.5, (0.5, 0.5), 0), (1.5, (5, 2), 20)]
)
def test_5000_questions_with_a_shift_in_the_middle_stay_within_5_percent(value, after, in_flight):
    rng = np.random.default_rng(7)
    difficulties = np.clip(np.r_[rng.beta(2, 4, 2500), rng.beta(*after, 2500)], 0, 0.99)
    difficulties[rng.random(5000) < 0.1] = 0.97  # answers that state nothing all have the same difficulty
    spent = stream(TargetController(Target.from_options(calls=value), PATH), difficulties, in_flight)
    total = np.r_[0.0, np.cumsum(spent)]
    windows = (total[700:] - total[200:-500]) / 500
    assert np.abs(windows / value - 1).max() < 0.05
    since_shift = np.cumsum(spent[2500:]) / np.arange(1, 2501)
    assert np.abs(since_shift[200:] / value - 1).max() < 0.05


def test_a_cost_target_is_met_without_known_prices():
    controller = TargetController(Target.from_options(cost_usd=0.004), PATH)
    rng, spent = np.random.default_rng(1), []
    for d in rng.beta(2, 3, 3000):
        choice = controller.choose()
        path = Path.SIMPLE if d < choice.tau1 else Path.MEDIUM if d < choice.tau2 else Path.HARD
        cost = {Path.SIMPLE: 0.0002, Path.MEDIUM: 0.005, Path.HARD: 0.03}[path] * rng.uniform(0.5, 1.5)
        controller.settle(path, controller.book(float(d), path), cost)
        spent.append(cost)
    assert np.mean(spent[500:]) == pytest.approx(0.004, rel=0.05)


def test_the_controller_recovers_from_an_unreachable_target():
    controller = TargetController(Target.from_options(calls=1.5), PATH)
    for _ in range(500):  # every question is forced to cost 6
        controller.settle(Path.SIMPLE, controller.book(0.1, Path.SIMPLE), 6.0)
    rng = np.random.default_rng(0)
    spent = stream(controller, rng.beta(2, 3, 1500))
    assert spent[800:].mean() == pytest.approx(1.5, rel=0.05)


def test_cancelled_questions_do_not_change_the_debt():
    controller = TargetController(Target.from_options(calls=1.8), PATH)
    for _ in range(50):
        controller.cancel(controller.book(0.9, Path.HARD))
    assert controller.state.debt == pytest.approx(0.0)
    assert controller.state.questions == 0


@given(shares, shares, shares)
def test_thresholds_fall_as_t_rises(d, t, more):
    low, high = sorted((t, more))
    one, other = PATH.thresholds(low), PATH.thresholds(high)
    assert other[0] <= one[0]
    assert other[1] <= one[1]
    assert one[0] <= one[1]
    medium, hard = (float(v) for v in PATH.positions(d))
    assert medium <= hard + 1e-12
    if d < 1:
        tau1, tau2 = PATH.thresholds(min(1.0, medium + 1e-9))
        assert d >= tau1 - 1e-6
        assert (d >= tau2 - 1e-6) or hard > medium


def test_t_0_is_always_simple_and_t_1_always_hard():
    assert PATH.thresholds(0) == (1.0, 1.0)
    assert PATH.thresholds(1) == (0.0, 0.0)
    assert ThresholdPath.through((0.8, 0.9), (0.3, 0.7)).thresholds(1 / 3) == pytest.approx((0.8, 0.9))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"calls": 0.5}, "at least 1"),
        ({"calls": float("nan")}, "above 0"),
        ({"cost_usd": 0.0}, "above 0"),
        ({"calls": 2.0, "cost_usd": 0.1}, "not both"),
    ],
)
def test_an_invalid_target_is_rejected(options, why):
    with pytest.raises(InputError, match=why):
        Target.from_options(**options)


def test_rising_thresholds_are_rejected():
    with pytest.raises(InputError, match="must fall"):
        ThresholdPath.through((0.2, 0.5), (0.3, 0.6))


@settings(max_examples=20)
@given(st.lists(st.tuples(shares, st.sampled_from(list(Path)), st.floats(0, 10)), max_size=40))
def test_states_survive_a_round_trip_and_can_be_merged(events):
    together, first, second = TargetState(), TargetState(), TargetState()
    for number, event in enumerate(events):
        together.count(*event)
        (first if number < len(events) // 2 else second).count(*event)
    again = TargetState.from_dict(first.followed_by(second).to_dict())
    assert again.questions == together.questions
    assert again.total == pytest.approx(together.total)
    assert again.histogram == pytest.approx(together.histogram, abs=1e-3)
    assert again.spent == pytest.approx(together.spent)
