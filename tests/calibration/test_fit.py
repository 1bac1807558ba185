from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from odar.calibration.bootstrap import Interval
from odar.calibration.evidence import evidence_of
from odar.calibration.fit import fit
from odar.calibration.records import Attempt
from odar.types import Step
from support.population import evidence, incumbents, population


def test_calibration_does_not_lose_accuracy_on_held_out_items():
    fitted = fit(evidence(), incumbents())
    assert not fitted.worse
    assert fitted.accuracy_gain.value > -0.01
    assert sum(fitted.after.mix) == pytest.approx(1)
    assert {part.name for part in fitted.parts} == {"estimator", "posterior"}
    assert fitted.setup.statistics[0].log_tokens_mean is not None


def test_thresholds_follow_the_money_where_accuracy_allows_it():
    """Where the slow agent is no better than the fast one, paying for it is a waste."""
    useless = fit(evidence(fast=0.5, solve=0.3), incumbents(looks_first=False))
    assert useless.after.cost_usd.value < useless.before.cost_usd.value
    assert useless.moved > 0


def test_a_fitted_posterior_changes_the_path():
    """The fast agent is mostly right on hard questions too: the shipped coefficients do not know that."""
    fitted = fit(evidence(fast=0.85, solve=0.95), incumbents())
    assert fitted.parts[1].better
    assert fitted.moved > 0.1
    assert fitted.after.mix != fitted.before.mix
    assert not fitted.worse


def test_where_the_mode_is_prior_nobody_looks_first():
    fitted = fit(evidence(), incumbents(looks_first=False))
    assert fitted.setup.posterior is None
    assert not fitted.looks_first


def test_the_same_records_give_the_same_fit():
    a, b = (fit(evidence(size=120), incumbents()) for _ in range(2))
    assert a.setup.thresholds == b.setup.thresholds
    assert a.setup.fusion.beta == b.setup.fusion.beta
    assert a.accuracy_gain == b.accuracy_gain


def test_without_log_probabilities_fusion_and_thresholds_are_still_fitted():
    def bare(attempt):
        return replace(attempt, energy=None, varentropy=None)

    records = [
        replace(r, fast=bare(r.fast), verify=bare(r.verify), solves=tuple(map(bare, r.solves)))
        for r in population(fast=0.2, solve=0.9)
    ]
    fitted = fit(evidence_of(records, 0.1), incumbents())
    assert fitted.setup.statistics == (None, None, None)
    assert "log-probabilities are needed" in fitted.parts[1].note
    assert not fitted.worse


def test_unknown_costs_stay_unknown():
    solve = Attempt(Step.SOLVE, "m", "x", True, None, None, 1)
    records = [replace(record, solves=(solve,) * 5) for record in population(size=60)]
    fitted = fit(evidence_of(records, 0.1), incumbents(looks_first=False))
    assert fitted.after.cost_usd is None or not np.isnan(fitted.after.cost_usd.value)


@pytest.mark.parametrize(
    ("accuracy", "price", "refused"),
    [
        ((0.02, 0.01, 0.03), (1.0, 0.5, 1.5), ""),
        ((0.0, -0.01, 0.01), (-1.0, -2.0, -0.5), ""),
        ((0.0, -0.01, 0.01), (1.0, 0.5, 1.5), "costs more"),
        ((-0.02, -0.05, 0.01), (-1.0, -2.0, -0.5), "less often right"),
        ((-0.005, -0.008, -0.001), (-1.0, -2.0, -0.5), "less often right"),
    ],
)
def test_what_is_worse_is_refused(accuracy, price, refused):
    fitted = fit(evidence(size=60), incumbents(looks_first=False))
    judged = replace(fitted, accuracy_gain=Interval(*accuracy), price_gain=Interval(*price))
    assert (refused in judged.worse) if refused else not judged.worse
