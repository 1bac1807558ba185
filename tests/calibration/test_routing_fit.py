"""The acceptance rule of a fit, and thresholds within limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.calibration.bootstrap import Interval, bootstrap_mean
from odar.calibration.fusion_fit import FusionFit
from odar.calibration.routing_fit import (
    TOLERANCE,
    Goal,
    RoutingOption,
    choose_within_limit,
    fit_by_gain,
    rejection_reason,
)
from odar.calibration.setup import PathOutcomes
from odar.policy.path import HARD, SIMPLE, Routing, Thresholds

SAVES, COSTS, NEITHER = Interval(-0.9, -1.2, -0.6), Interval(0.9, 0.6, 1.2), Interval(-0.1, -0.4, 0.2)


@pytest.mark.parametrize(
    ("accuracy", "price", "why"),
    [
        pytest.param((0.02, 0.01, 0.03), COSTS, "", id="more expensive and significantly better"),
        pytest.param((0.02, -0.01, 0.05), COSTS, "the cost is higher", id="more expensive and perhaps better"),
        pytest.param((0.02, -0.01, 0.05), NEITHER, "", id="same cost and perhaps better"),
        pytest.param((0.0, 0.0, 0.0), SAVES, "", id="same accuracy for less"),
        pytest.param((0.0, 0.0, 0.0), COSTS, "the cost is higher", id="same accuracy for more"),
        pytest.param((0.0, 0.0, 0.0), Interval(0, 0, 0), "", id="the same"),
        pytest.param((-0.013, -0.037, 0.013), SAVES, "", id="insignificant loss for a significant saving"),
        pytest.param(
            (-0.013, -0.037, 0.013), NEITHER, "not significantly lower", id="for a saving that may be chance"
        ),
        pytest.param(
            (-0.013, -0.037, 0.013), COSTS, "not significantly lower", id="insignificant loss without a saving"
        ),
        pytest.param((-0.013, -0.06, 0.03), SAVES, "may be 0.060 below", id="loss that may be large"),
        pytest.param((-0.005, -0.008, -0.001), SAVES, "significantly below", id="small significant loss"),
        pytest.param((-0.5, -0.6, -0.4), SAVES, "significantly below", id="large significant loss"),
        pytest.param((0.01, -0.2, 0.2), SAVES, "", id="few items without a loss"),
    ],
)
def test_rejection_reasons_by_interval(accuracy, price, why):
    said = rejection_reason(Interval(*accuracy), price)
    assert (why in said) if why else said is None


@pytest.mark.parametrize(("tolerance", "fine"), [(0.0, False), (0.03, False), (0.037, True), (0.05, True)])
def test_the_tolerance_decides_how_much_accuracy_a_saving_may_cost(tolerance, fine):
    assert (rejection_reason(Interval(-0.013, -0.037, 0.013), SAVES, tolerance) is None) is fine


differences = (
    st.lists(st.floats(-1, 1), min_size=3, max_size=3).map(sorted).map(lambda x: Interval(x[1], x[0], x[2]))
)
steps = st.floats(0, 0.5)


def moved(interval, by):
    return Interval(*(each + by for each in interval))


@given(accuracy=differences, price=differences, tolerance=steps, more=steps)
def test_higher_accuracy_or_lower_cost_never_leads_to_a_rejection(accuracy, price, tolerance, more):
    if rejection_reason(accuracy, price, tolerance) is None:
        assert rejection_reason(moved(accuracy, more), price, tolerance) is None
        assert rejection_reason(accuracy, moved(price, -more), tolerance) is None
        assert rejection_reason(accuracy, price, tolerance + more) is None


@given(accuracy=differences, price=differences, tolerance=steps)
def test_an_accepted_fit_has_no_significant_loss_and_no_loss_without_a_saving(accuracy, price, tolerance):
    if rejection_reason(accuracy, price, tolerance) is None:
        assert accuracy.high >= 0
        assert accuracy.value >= 0 or (price.high < 0 and accuracy.low >= -tolerance)
        assert accuracy.low > 0 or price.low <= 0


@given(accuracy=differences, price=differences)
def test_without_tolerance_no_loss_is_accepted(accuracy, price):
    assert accuracy.value >= 0 or rejection_reason(accuracy, price, 0.0)


@given(size=st.integers(30, 400), lost=st.floats(0.03, 1), seed=st.integers(0, 1000))
def test_the_most_likely_loss_is_at_most_half_the_tolerance(size, lost, seed):
    """The middle of an interval from −tolerance or above to zero or above is at least −tolerance/2."""
    rng = np.random.default_rng(seed)
    difference = bootstrap_mean(-(rng.random(size) < lost).astype(np.float64), resamples=500)
    if rejection_reason(difference, SAVES) is None:
        assert difference.value >= -TOLERANCE / 2


def two_experts(math_items):
    """Return items where Hard answers all math questions and Simple all others; d is uninformative."""
    size = 2 * math_items
    experts = np.array(["math", "language"] * math_items)
    correct = np.zeros((size, 3), dtype=bool)
    correct[experts == "math", HARD] = True
    correct[experts == "language", :] = True
    calls = np.tile([1, 2, 6], (size, 1))
    difficulty = np.random.default_rng(0).uniform(size=size)
    outcomes = PathOutcomes(correct, calls, np.zeros((size, 3)))
    return RoutingOption(None, None, difficulty, FusionFit(0.25, 0.0, np.ones(3)), outcomes), experts


def test_an_expert_that_gains_from_the_hard_path_gets_its_own_thresholds():
    variant, experts = two_experts(60)
    common, own = fit_by_gain(variant, Thresholds(0.3, 0.7), experts, Goal("accuracy", max_calls=3.6))
    paths = Routing(common, by_expert=own).route(variant.difficulty, variant.difficulty, experts).path
    assert (paths[experts == "math"] == HARD).mean() > 0.95
    assert (paths[experts == "language"] == SIMPLE).mean() > 0.95


def test_an_expert_with_few_items_keeps_the_common_thresholds():
    variant, experts = two_experts(40)
    _, own = fit_by_gain(variant, Thresholds(0.3, 0.7), experts, Goal("accuracy", max_calls=3.6))
    assert own == {}


@pytest.mark.parametrize("limit", [1.0, 1.5, 2.0, 3.0, 4.5, 6.0])
def test_the_limit_of_calls_is_met(limit):
    variant, experts = two_experts(60)
    common, own = fit_by_gain(variant, Thresholds(0.3, 0.7), experts, Goal("accuracy", max_calls=limit))
    paths = Routing(common, by_expert=own).route(variant.difficulty, variant.difficulty, experts).path
    assert variant.outcomes.on_paths(paths)[1].mean() <= limit


def two_variants(informative: int, size: int = 400) -> list[RoutingOption]:
    """Return two variants; the difficulty of one predicts which questions only the Hard path answers."""
    rng = np.random.default_rng(0)
    needs_hard = rng.random(size) < 0.3
    right = np.column_stack([~needs_hard, ~needs_hard, np.ones(size, dtype=bool)])
    outcomes = PathOutcomes(right, np.tile([1, 2, 6], (size, 1)), np.zeros((size, 3)))
    noise, knowing = rng.random(size), np.where(needs_hard, 0.8, 0.2) + rng.uniform(-0.1, 0.1, size)
    return [
        RoutingOption(
            None, None, knowing if way == informative else noise, FusionFit(0.25, 0.0, np.ones(3)), outcomes
        )
        for way in range(2)
    ]


@pytest.mark.parametrize("informative", [0, 1])
def test_the_variant_with_the_best_held_out_accuracy_is_chosen(informative):
    options = two_variants(informative)
    chosen, thresholds, _ = choose_within_limit(
        options, Thresholds(0.3, 0.7), None, Goal("accuracy", max_calls=2.6)
    )
    assert chosen is options[informative]
    assert chosen.score_and_price(thresholds.paths(chosen.difficulty))[0].mean() > 0.95


def test_the_first_of_two_equal_variants_is_kept():
    first, _ = two_variants(0)
    second = replace(first)
    chosen, _, _ = choose_within_limit([first, second], Thresholds(0.3, 0.7), None, Goal("accuracy", max_calls=2.6))
    assert chosen is first
