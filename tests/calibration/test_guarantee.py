"""The guarantee holds on unseen items, and it finds cheaper settings."""

from __future__ import annotations

import numpy as np
import pytest

from odar.calibration.guarantee import LossBound, certify, choose_bet, guarantee, log_capital
from odar.calibration.routing_fit import Goal, RoutingOption, fit_routing
from odar.calibration.setup import PathOutcomes
from odar.errors import InputError
from odar.policy.path import Thresholds
from odar.policy.target import ThresholdPath
from support.population import current_parts, evidence

PATH = ThresholdPath.through((0.3, 0.7))
CALLS = np.array([1, 2, 6])


def population(rng, size):
    """Return questions whose difficulty predicts where the cheaper paths fail; Hard is right on 0.96."""
    z = rng.random(size)
    difficulty = np.clip(z + rng.normal(0, 0.1, size), 0, 0.99)
    hard = rng.random(size) < 0.96
    simple = np.where(rng.random(size) < 1.02 - z**2, hard, rng.random(size) < 0.2)
    medium = np.where(rng.random(size) < 1.03 - 0.3 * z**2, hard, rng.random(size) < 0.5)
    return difficulty, np.column_stack([simple, medium, hard]), np.tile(CALLS, (size, 1))


@pytest.mark.parametrize(("allowed", "items"), [(0.05, 400), (0.02, 1200)])
def test_violations_are_rare_and_cheaper_settings_are_found(allowed, items):
    """1,000 draws are certified and then judged on 200,000 other items: at most 5% violations, plus sampling error."""
    rng = np.random.default_rng(5)
    difficulty, correct, _ = population(rng, 200_000)
    steps = {round(float(t), 9): Thresholds(*PATH.thresholds(float(t))) for t in np.linspace(1, 0, 51)}
    rows = np.arange(len(difficulty))
    true = {t: correct[:, 2].mean() - correct[rows, s.paths(difficulty)].mean() for t, s in steps.items()}
    violated = cheaper = 0
    for _ in range(1000):
        d, right, calls = population(rng, items)
        found = certify(LossBound(allowed), d, right, calls, right[:, 2], PATH, rng.random(items) < 0.5)
        violated += true[round(found.t, 9)] > allowed
        cheaper += found.cheaper
    assert violated <= 65
    assert cheaper >= 800


def test_the_level_of_the_test_holds_at_the_boundary():
    """A setting whose loss equals the limit is certified in at most 5% of the draws."""
    rng = np.random.default_rng(0)
    certified = 0
    for _ in range(1000):
        loss = np.where(rng.random(300) < 0.08, 1.0, np.where(rng.random(300) < 0.0326, -1.0, 0.0))
        bet = choose_bet(loss[150:], 0.05)
        certified += log_capital(loss[:150], 0.05, bet) >= np.log(20)
    assert certified <= 65


def test_three_hundred_items_without_a_loss_certify_one_point():
    assert log_capital(np.zeros(340), 0.01, 0.9 / 0.99) >= np.log(20)
    assert log_capital(np.zeros(250), 0.01, 0.9 / 0.99) < np.log(20)


def test_a_failed_certification_says_how_many_items_are_needed():
    rng = np.random.default_rng(2)
    difficulty, correct, calls = population(rng, 60)
    found = certify(LossBound(0.01), difficulty, correct, calls, correct[:, 2], PATH, np.arange(60) % 2 == 0)
    assert not found.cheaper
    assert found.thresholds == Thresholds(0.0, 0.0)
    assert found.more_items > 100


def test_a_setting_that_loses_too_much_is_not_certified():
    size = 400
    correct = np.column_stack([np.zeros(size), np.zeros(size), np.ones(size)]).astype(bool)
    calls = np.tile(CALLS, (size, 1))
    difficulty = np.linspace(0, 0.99, size)
    found = certify(LossBound(0.001), difficulty, correct, calls, correct[:, 2], PATH, np.arange(size) % 2 == 0)
    assert found.more_items is None or found.more_items > 0
    assert found.loss <= 0.001


def test_everything_is_fitted_to_the_other_half():
    found = evidence(size=600, fast=0.6, solve=0.95)
    setup, certificate = guarantee(found, current_parts(), LossBound(0.1))
    assert certificate.items == 300
    assert setup.thresholds == certificate.thresholds
    assert certificate.cheaper
    assert certificate.to_dict()["assumes"].startswith("later questions are exchangeable")


@pytest.mark.parametrize("options", [{"at_most_worse": 0.0}, {"at_most_worse": 0.05, "confidence": 1.0}])
def test_invalid_promises_are_rejected(options):
    with pytest.raises(InputError, match="expected a share"):
        LossBound(**options)


def variant(size=2000, seed=0):
    """Return items where Hard is right on 0.993, Medium on 0.900, and difficulty predicts which need Hard."""
    rng = np.random.default_rng(seed)
    difficulty = rng.random(size)
    right = np.column_stack([
        rng.random(size) < np.where(difficulty < 0.4, 0.995, 0.6),
        rng.random(size) < np.where(difficulty < 0.5, 0.993, 0.807),
        rng.random(size) < 0.993,
    ])  # fmt: skip
    calls = np.tile(CALLS, (size, 1))
    return RoutingOption(None, None, difficulty, None, PathOutcomes(right, calls, np.full((size, 3), np.nan)))


def test_the_most_accuracy_within_a_limit_of_calls_is_found():
    """An earlier version chose a setting with 0.897, although 0.99 is possible at 3.6 calls."""
    one = variant()
    today = one.outcomes.correct[:, 1].astype(float)
    _, chosen = fit_routing([one], Thresholds(0.3, 0.7), today, Goal("accuracy", max_calls=3.6))
    right, calls, _ = variant(20_000, seed=1).outcomes.on_paths(chosen.paths(variant(20_000, seed=1).difficulty))
    assert right.mean() > 0.985
    assert calls.mean() < 3.6 * 1.03


def test_the_lowest_cost_without_a_loss_is_found_and_impossible_limits_fail():
    one = variant()
    today = one.outcomes.correct[:, 1].astype(float)
    _, cheap = fit_routing([one], Thresholds(0.0, 1.0), today, Goal("cost"))
    right, calls, _ = one.outcomes.on_paths(cheap.paths(one.difficulty))
    assert right.mean() >= today.mean() - 0.005
    assert calls.mean() < 2.0
    assert fit_routing([one], Thresholds(0.3, 0.7), today, Goal("accuracy", max_calls=0.5)) is None
    assert fit_routing([one], Thresholds(0.3, 0.7), today, Goal("accuracy", max_cost=1.0)) is None  # unknown
