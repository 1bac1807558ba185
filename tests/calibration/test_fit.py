from __future__ import annotations

import numpy as np
import pytest

from odar.calibration.fit import Thresholds, fit
from odar.calibration.fusion_fit import FusionFit
from odar.calibration.policy import outcomes, path_votes, paths, votes_of
from odar.calibration.records import Attempt, Record
from odar.types import Step

NOW = Thresholds(0.3, 0.7)
EVEN = FusionFit(0.25, 0.0, np.ones(7))


def attempt(rng, step, chance, cost):
    correct = bool(rng.random() < chance)
    answer = "right" if correct else f"wrong {rng.integers(3)}"
    energy = rng.normal(0.2 if correct else 0.3, 0.1)
    return Attempt(step, "m", answer, correct, float(energy), 0.1, 10, None, cost)


def population(seed=0, size=300, fast=0.5, solve=0.75):
    """Easy items need no slow agent, hard ones do; difficulty tells which is which."""
    rng = np.random.default_rng(seed)
    records = []
    for i in range(size):
        d = float(rng.random())
        records.append(
            Record(
                id=str(i),
                query=f"q{i}",
                difficulty=d,
                fast=attempt(rng, Step.ANSWER, 1.0 if d < 0.35 else fast, 0.001),
                verify=attempt(rng, Step.VERIFY, 1.0 if d < 0.35 else solve, 0.004),
                solves=tuple(attempt(rng, Step.SOLVE, 1.0 if d < 0.35 else solve, 0.004) for _ in range(5)),
            )
        )
    return records


def test_the_calls_and_costs_of_each_path():
    records = population(size=40)
    result = outcomes(records, votes_of(records, 0.1), EVEN)
    assert result.calls[0].tolist() == [1, 2, 6]
    assert result.cost[0] == pytest.approx([0.001, 0.005, 0.021])
    simple = result.under(np.zeros(40, dtype=np.int64))
    assert simple[0].mean() == np.mean([record.fast.correct for record in records])


def test_each_path_sees_only_its_own_candidates():
    votes = votes_of(population(size=10), 0.1)
    assert (path_votes(votes, 1).groups[:, 2:] == -1).all()
    assert (path_votes(votes, 2).groups[:, 1] == -1).all()


def test_unknown_costs_stay_unknown():
    records = [
        Record(
            r.id,
            r.query,
            r.difficulty,
            r.fast,
            r.verify,
            tuple(Attempt(Step.SOLVE, "m", "x", True, None, None, 1) for _ in range(5)),
        )
        for r in population(size=40)
    ]
    result = outcomes(records, votes_of(records, 0.1), EVEN)
    assert np.isnan(result.cost[:, 2]).all()
    assert not np.isnan(result.cost[:, :2]).any()
    assert fit(records, NOW, EVEN, 0.1).after.cost_usd is None


def test_calibration_does_not_lose_accuracy_on_held_out_items():
    fitted = fit(population(), NOW, EVEN, 0.1)
    assert not fitted.worse
    assert fitted.after.accuracy.mean >= fitted.baselines["always simple"].mean
    assert sum(fitted.after.mix) == pytest.approx(1)


def test_thresholds_follow_the_money_where_accuracy_allows_it():
    """Where the slow agent is no better than the fast one, paying for it is a waste."""
    useless = fit(population(fast=0.5, solve=0.3), NOW, EVEN, 0.1)
    assert useless.after.cost_usd.mean < useless.before.cost_usd.mean


def test_the_same_records_give_the_same_fit():
    a, b = (fit(population(), NOW, EVEN, 0.1) for _ in range(2))
    assert a.thresholds == b.thresholds
    assert a.fusion.beta == b.fusion.beta
    assert a.difference == b.difference


def test_one_absurd_energy_does_not_move_the_statistics():
    records = population()
    wild = Attempt(Step.ANSWER, "m", "x", False, 1e6, 0.1, 1)
    spoilt = [Record("w", "q", 0.5, wild, records[0].verify, records[0].solves), *records[1:]]
    plain, robust = fit(records, NOW, EVEN, 0.1), fit(spoilt, NOW, EVEN, 0.1)
    assert robust.means[0] == pytest.approx(plain.means[0], abs=0.02)
    assert robust.deviations[0] == pytest.approx(plain.deviations[0], rel=0.2)


def test_paths_by_thresholds():
    assert paths(np.array([0.0, 0.29, 0.3, 0.69, 0.7, 1.0]), 0.3, 0.7).tolist() == [0, 0, 1, 1, 2, 2]
