"""Fitting estimator, posterior and routing: each finds the known optimum and is used only if it helps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odar.calibration import parts
from odar.calibration.evidence import fit_statistics
from odar.calibration.fusion_fit import FusionFit
from odar.calibration.parts import (
    FittedPart,
    fit_estimator_part,
    fit_posterior_part,
    fit_weights,
    ordering_error,
    paired_gain,
)
from odar.calibration.routing_fit import (
    BALANCED,
    SHARES,
    RoutingOption,
    candidate_thresholds,
    fit_routing,
    keeps_accuracy,
)
from odar.calibration.setup import PathOutcomes
from odar.difficulty.estimator import shipped_estimator
from odar.policy.path import Thresholds
from odar.policy.posterior import TERMS, PosteriorDifficulty
from odar.policy.signals import AnswerKind
from support.population import evidence, setup

NOW = Thresholds(0.3, 0.7)
BY_LENGTH = PosteriorDifficulty.load().with_weights(AnswerKind.REASONED, {"long": 1.0})


def with_features(fast, seed=0):
    """Return signals with random features; d* depends only on the fourth feature."""
    scaling = shipped_estimator().scaling_
    rng = np.random.default_rng(seed)
    features = np.clip(scaling.mean + scaling.scale * rng.normal(size=(len(fast), 24)), scaling.low, scaling.high)
    return replace(fast, features=features, prior=shipped_estimator().predict(features))


def test_the_estimator_learns_the_difficulty_for_this_agent():
    fast = with_features(evidence().fast)
    order = np.argsort(np.argsort(fast.features[:, 3]))
    fast = replace(fast, wrong=order > len(fast) / 2)
    part = fit_estimator_part(fast, shipped_estimator())
    assert part.better
    assert np.corrcoef(part.held_out, fast.wrong)[0, 1] > np.corrcoef(fast.prior, fast.wrong)[0, 1] + 0.1


def test_a_good_estimator_is_kept():
    fast = with_features(evidence().fast)
    rng = np.random.default_rng(1)
    fast = replace(fast, wrong=rng.random(len(fast)) < fast.prior)
    assert not fit_estimator_part(fast, shipped_estimator()).better


def test_weights_that_choose_fewer_right_paths_are_rejected(monkeypatch):
    """A lower squared error does not help if the values are on the wrong side of a threshold."""
    fast = with_features(evidence().fast)
    target, prior = fast.target, np.where(fast.target < 0.3, 0.29, np.where(fast.target < 0.7, 0.5, 0.71))
    fast, nearer = replace(fast, prior=prior), np.where(target < 0.3, 0.31, np.clip(target, 0.7, 1.0))
    assert ((nearer - target) ** 2).mean() < ((prior - target) ** 2).mean()
    monkeypatch.setattr(parts, "cross_predict", lambda *args, **options: nearer)
    part = fit_estimator_part(fast, shipped_estimator())
    assert (part.model, part.better) == (None, False)
    assert "share of right paths would fall from 100.0%" in part.note


def test_too_few_items_or_another_estimator_are_not_fitted():
    few = with_features(evidence(size=45).fast)
    part = fit_estimator_part(few, shipped_estimator())
    assert (part.model, part.better, part.note) == (None, False, "50 items are needed, 5 more")
    assert "not the learned one" in fit_estimator_part(few, None).note


def test_the_posterior_learns_which_signal_predicts_the_gain():
    """The weights in use follow length alone; here only log-probabilities are informative."""
    found = evidence(fast=0.5, solve=0.95, size=1500)
    now = setup(statistics=fit_statistics(found))
    part = fit_posterior_part(found.fast, now, BY_LENGTH)
    assert part.better
    fitted = part.model.weights["reasoned"]
    assert fitted.get("unsure_text", 0) + fitted.get("unsure_answer", 0) > fitted.get("long", 0)
    in_use = now.posterior_difficulty(BY_LENGTH, found.fast.prior, found.fast)
    assert ordering_error(part.held_out, found.fast.gain).mean() < ordering_error(in_use, found.fast.gain).mean()


def test_a_fitted_posterior_in_use_is_kept():
    found = evidence(fast=0.5, solve=0.95, size=800)
    now = setup(statistics=fit_statistics(found))
    once = fit_posterior_part(found.fast, now, BY_LENGTH)
    assert not fit_posterior_part(found.fast, now, once.model).better


def test_few_labels_change_the_weights_little():
    found = evidence(fast=0.5, solve=0.95, size=220)
    part = fit_posterior_part(found.fast, setup(statistics=fit_statistics(found)), BY_LENGTH)
    assert part.model.weights["reasoned"]["long"] > 0.2


@pytest.mark.parametrize(
    ("size", "fast", "why"),
    [(40, 0.5, "160 more"), (240, 1.0, "20 answers that the slow model makes right or wrong are needed, 20 more")],
)
def test_a_posterior_that_cannot_be_fitted_says_why(size, fast, why):
    found = evidence(size=size, fast=fast, solve=fast)
    part = fit_posterior_part(found.fast, setup(statistics=fit_statistics(found)), PosteriorDifficulty.load())
    assert part.model is None
    assert part.note.endswith(why)


def test_weights_are_never_negative_and_unknown_terms_count_as_average():
    rng = np.random.default_rng(0)
    terms = rng.random((2000, len(TERMS)))
    gain = terms[:, 0] - terms[:, 2] + rng.normal(0, 0.1, 2000)  # the third term points the wrong way
    terms[rng.random(terms.shape) < 0.1] = np.nan
    found = fit_weights(terms, gain)
    assert found[TERMS[0]] > 0.9
    assert TERMS[2] not in found
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-3)


def test_better_means_that_the_whole_interval_is_above_zero():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=200)
    assert FittedPart("p", 1, noise, paired_gain(noise, noise + 0.5), "error").better
    assert not FittedPart("p", 1, noise, paired_gain(noise, rng.permutation(noise)), "error").better
    assert not FittedPart("p", None, noise, None, "error", "too few").better


PLAIN = FusionFit(0.25, 0.0, np.ones(3))


def variant_of(size, seed, chances=(0.4, 0.5, 0.6), price=(0.001, 0.002, 0.006)):
    """Return items that each path answers correctly with these chances, independently of difficulty."""
    rng = np.random.default_rng(seed)
    calls, cost = np.tile([1, 2, 6], (size, 1)), np.tile(price, (size, 1))
    result = PathOutcomes(rng.random((size, 3)) < chances, calls, cost.astype(float))
    return RoutingOption(None, None, rng.random(size), PLAIN, result)


@given(seed=st.integers(0, 10_000), size=st.integers(5, 60))
@settings(max_examples=40, deadline=None)
def test_fitted_routing_loses_neither_accuracy_nor_efficiency_on_its_items(seed, size):
    variant = variant_of(size, seed)
    right, price = variant.score_and_price(NOW.paths(variant.difficulty))
    found, chosen = fit_routing([variant], NOW, right)
    after, cost = found.score_and_price(chosen.paths(found.difficulty))
    assert after.mean() >= right.mean()
    assert BALANCED.objective(after, cost) >= BALANCED.objective(right, price)
    assert chosen.tau1 <= chosen.tau2


def test_no_routing_is_fitted_if_every_choice_loses():
    assert fit_routing([variant_of(30, 0)], NOW, np.ones(30)) is None


@pytest.mark.parametrize(("gained", "lost", "fine"), [(0, 0, True), (5, 5, False), (9, 0, True), (0, 1, False)])
def test_an_insignificant_gain_is_rejected(gained, lost, fine):
    assert keeps_accuracy(np.array([1.0] * gained + [-1.0] * lost + [0.0] * (100 - gained - lost))) is fine


def test_a_combination_with_the_current_fusion_rule_is_found():
    """The fitted rule is worse on the Hard path; with the current rule the same thresholds lose nothing."""
    kept = variant_of(200, 1, chances=(0.2, 0.2, 0.9))
    fitted = replace(kept, fusion=replace(PLAIN, beta=2.0), outcomes=variant_of(200, 2, (0.2, 0.2, 0.2)).outcomes)
    today, _ = kept.score_and_price(Thresholds(0.0, 0.0).paths(kept.difficulty))
    assert fit_routing([fitted], NOW, today) is None
    found, _ = fit_routing([fitted, kept], Thresholds(0.0, 0.0), today)
    assert found is kept


def test_a_free_fast_agent_is_the_most_efficient():
    """Accuracy per cost is infinite at zero cost, which must not rank lowest."""
    variant = variant_of(100, 0, chances=(0.5, 0.5, 0.5), price=(0.0, 0.002, 0.006))
    variant.outcomes.correct[:] = variant.outcomes.correct[:, :1]
    _, chosen = fit_routing([variant], NOW, variant.score_and_price(NOW.paths(variant.difficulty))[0])
    assert set(chosen.paths(variant.difficulty)) == {0}


@pytest.mark.parametrize(
    ("cost", "unit"),
    [([0.001, 0.002, 0.006], "dollars"), ([0.0, 0.0, 0.0], "calls"), ([0.001, np.nan, 0.006], "calls")],
)
def test_all_prices_have_one_unit(cost, unit):
    calls = np.array([[1, 2, 6], [1, 2, 4]])
    result = PathOutcomes(np.ones((2, 3), dtype=bool), calls, np.array([cost, [0.0, 0.0, 0.0]]))
    assert result.price.tolist() == (result.cost if unit == "dollars" else calls).tolist()


def test_the_grid_of_the_paper_is_tried():
    tried = set(candidate_thresholds(np.linspace(0, 1, 50), NOW, SHARES))
    assert {Thresholds(a, b) for a in (0.2, 0.3, 0.4) for b in (0.6, 0.7, 0.8)} <= tried
