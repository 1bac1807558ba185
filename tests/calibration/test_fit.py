from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from odar.calibration.bootstrap import Interval
from odar.calibration.evidence import evidence_of
from odar.calibration.fit import _difficulties, fit
from odar.calibration.fusion_fit import FusionFit
from odar.calibration.parts import FittedPart
from odar.calibration.routing_fit import TOLERANCE
from odar.difficulty.estimator import shipped_estimator
from odar.policy.path import Thresholds
from odar.policy.posterior import PosteriorDifficulty
from odar.policy.signals import AnswerKind
from odar.recording.schema import Attempt
from odar.types import Step
from support.population import current_parts, evidence, population


def test_calibration_does_not_lose_accuracy_on_held_out_items():
    fitted = fit(evidence(seed=1), current_parts())
    assert not fitted.rejection
    assert fitted.accuracy_gain.value > -0.01
    assert sum(fitted.after.mix.values()) == pytest.approx(1)
    assert {part.name for part in fitted.parts} == {"estimator", "posterior"}
    assert fitted.setup.statistics[0].quantiles is not None


@pytest.mark.parametrize("seed", range(3))
def test_a_fit_generalises_to_new_items(seed):
    """The fit is judged on thousands of items that no fold has seen."""
    today = current_parts()
    fitted = fit(evidence(seed=seed), today)
    many = evidence(seed=1000, size=3000)
    (before, calls, cost), (after, _, cost_after) = (
        setup.outcomes(many).on_paths(setup.route(many.fast).path) for setup in (today.setup, fitted.setup)
    )
    if not fitted.rejection:
        assert after.mean() > before.mean() - TOLERANCE
        assert cost_after.mean() < 1.1 * cost.mean() or after.mean() > before.mean()
    assert calls.min() == 1


def test_cheaper_paths_are_chosen_if_the_slow_agent_is_no_better():
    """The slow agent is no better than the fast one, so it is not worth its price."""
    useless = fit(evidence(fast=0.5, solve=0.3), current_parts(may_use_posterior=False))
    assert useless.after.cost_usd.value < useless.before.cost_usd.value
    assert useless.moved > 0


def test_a_fitted_posterior_changes_the_path():
    """The weights in use follow length alone; here only log-probabilities are informative."""
    by_length = PosteriorDifficulty.load().with_weights(AnswerKind.REASONED, {"long": 1.0})
    fitted = fit(
        evidence(fast=0.5, solve=0.95, size=1200), replace(current_parts(posterior=by_length), posterior=by_length)
    )
    assert fitted.parts[1].better
    assert fitted.moved > 0.1
    assert fitted.after.mix != fitted.before.mix
    assert not fitted.rejection


def test_mode_prior_fits_no_posterior():
    fitted = fit(evidence(), current_parts(may_use_posterior=False))
    assert fitted.setup.posterior is None
    assert not fitted.may_use_posterior


def test_the_same_records_give_the_same_fit():
    a, b = (fit(evidence(size=120), current_parts()) for _ in range(2))
    assert a.setup.thresholds == b.setup.thresholds
    assert a.setup.fusion.beta == b.setup.fusion.beta
    assert a.accuracy_gain == b.accuracy_gain


def test_without_log_probabilities_thresholds_are_still_fitted():
    def bare(attempt):
        return replace(attempt, logprobs=(None,) * len(attempt.tokens))

    records = [replace(r, attempts=tuple(map(bare, r.attempts))) for r in population(fast=0.2, solve=0.9)]
    fitted = fit(evidence_of(records, 0.1), current_parts(thresholds=Thresholds(0.0, 0.0)))  # everything is hard
    assert fitted.setup.statistics[0].count == 0  # quantiles alone
    assert fitted.setup.statistics[1:] == (None, None)
    assert not fitted.rejection
    assert fitted.calls_gain.high < -1  # items below 0.35 need no slow agent


def test_unknown_costs_are_not_reported():
    solves = [Attempt(step=Step.SOLVE, index=i, model="m", text="x", answer="x", score=1.0) for i in range(5)]
    records = [replace(record, attempts=(*record.attempts[:2], *solves)) for record in population(size=60)]
    fitted = fit(evidence_of(records, 0.1), current_parts(may_use_posterior=False))
    assert fitted.after.cost_usd is None


@pytest.fixture(scope="module")
def some_fit():
    return fit(evidence(size=60), current_parts(may_use_posterior=False))


@pytest.mark.parametrize(
    ("accuracy", "calls", "refused"),
    [
        ((0.0, -0.01, 0.01), (-1.0, -2.0, -0.5), ""),
        ((-0.02, -0.04, 0.01), (-1.0, -2.0, -0.5), ""),
        ((-0.02, -0.04, 0.01), (-1.0, -2.0, 0.5), "on held-out folds, accuracy is below the current"),
        ((-0.02, -0.06, 0.01), (-1.0, -2.0, -0.5), "on held-out folds, accuracy may be 0.060 below"),
        ((-0.005, -0.008, -0.001), (-1.0, -2.0, -0.5), "on held-out folds, accuracy is significantly below"),
    ],
)
def test_a_fit_is_rejected_by_its_intervals(some_fit, accuracy, calls, refused):
    judged = replace(some_fit, accuracy_gain=Interval(*accuracy), calls_gain=Interval(*calls), cost_usd_gain=None)
    assert (refused in judged.rejection) if refused else not judged.rejection


def test_cost_decides_if_it_is_known_and_not_zero(some_fit):
    dearer, fewer = Interval(0.01, 0.005, 0.02), Interval(-1.0, -2.0, -0.5)
    judged = replace(some_fit, accuracy_gain=Interval(0, 0, 0), calls_gain=fewer, cost_usd_gain=dearer)
    assert "the cost is higher" in judged.rejection
    free = replace(judged.before, cost_usd=Interval(0.0, 0.0, 0.0))
    assert not replace(judged, before=free, after=free).rejection
    assert replace(judged, cost_usd_gain=None).price_gain is fewer


def test_a_fit_that_loses_on_held_out_folds_is_rejected(monkeypatch):
    """A choice that looks good on its own items is rejected by its loss on held-out folds."""
    found = evidence(fast=0.3, solve=0.95)
    today = current_parts(may_use_posterior=False)
    monkeypatch.setattr(
        "odar.calibration.routing_fit.keeps_accuracy", lambda *_: True
    )  # accept the cheapest in any case
    fitted = fit(found, today)
    assert fitted.after.calls.value < fitted.before.calls.value
    assert "accuracy is significantly below" in fitted.rejection


def test_no_acceptable_setting_keeps_the_current_one(monkeypatch):
    monkeypatch.setattr("odar.calibration.routing_fit.keeps_accuracy", lambda *_: False)
    today = current_parts(may_use_posterior=False)
    fitted = fit(evidence(size=60), today)
    assert fitted.setup is today.setup
    assert "none of the settings that were tried" in fitted.rejection
    assert fitted.moved == 0


def test_thresholds_are_also_tried_with_the_current_fusion_rule(monkeypatch):
    """A fitted fusion rule that is bad for routing must not prevent thresholds with the current rule."""
    fast_alone = FusionFit(0.0, 0.0, np.array([1.0, 0.0, 0.0]))
    monkeypatch.setattr("odar.calibration.fit._fit_fusion", lambda *_: fast_alone)
    today = current_parts(may_use_posterior=False)
    fitted = fit(evidence(fast=0.3, solve=0.95), today)
    assert fitted.setting_found
    assert fitted.setup.fusion is today.setup.fusion


def part(name, model, held_out, better):
    return FittedPart(name, model, held_out, Interval(0.1, 0.05 if better else -0.05, 0.2), "error")


@pytest.mark.parametrize("may_use_posterior", [True, False])
@pytest.mark.parametrize("posterior_better", [True, False])
@pytest.mark.parametrize("estimator_better", [True, False])
def test_every_combination_of_better_parts_is_tried(may_use_posterior, posterior_better, estimator_better):
    today, found = current_parts(may_use_posterior=may_use_posterior), evidence(size=60)
    ones = np.ones(60)
    estimator = part("estimator", shipped_estimator(), 0.1 * ones, estimator_better)
    learned = [PosteriorDifficulty.load().with_weights(AnswerKind.DIRECT, {"long": w}) for w in (1.0, 2.0)]
    same, both = (part("posterior", model, 0.2 * ones, posterior_better) for model in learned)
    ways = list(_difficulties(today, today.setup, found.fast, estimator, same, both))
    estimators = [estimator.model, None] if estimator_better else [None]
    expected = [(model, None) for model in estimators]
    if may_use_posterior:
        fitted = {model: both.model if model else same.model for model in estimators}
        posteriors = [
            (m, p) for m in estimators for p in ([fitted[m]] if posterior_better else []) + [today.posterior]
        ]
        expected = posteriors + expected
    assert [(model, posterior) for model, posterior, _ in ways] == expected
    assert all(len(difficulty) == 60 for _, _, difficulty in ways)
