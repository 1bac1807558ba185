from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from odar.calibration.evidence import evidence_of, fit_statistics, statistics_of
from odar.config import load_settings
from odar.policy.fusion import Fusion
from odar.policy.path import Thresholds
from odar.policy.posterior import PosteriorDifficulty
from odar.recording.schema import recorded_signals
from support.population import evidence, population, setup


def test_paths_by_thresholds():
    paths = Thresholds(0.3, 0.7).paths(np.array([0.0, 0.29, 0.3, 0.69, 0.7, 1.0]))
    assert paths.tolist() == [0, 0, 1, 1, 2, 2]


def test_energies_are_aligned_by_source_and_never_mixed():
    found = evidence(size=50)
    measured = setup(statistics=fit_statistics(found))
    aligned = measured.align(found.candidates).aligned
    for columns in ([0], [1], [2, 3, 4, 5, 6]):
        assert np.nanmean(aligned[:, columns]) == pytest.approx(0, abs=0.1)
        assert np.nanstd(aligned[:, columns]) == pytest.approx(1, abs=0.1)
    half = replace(measured, statistics=(measured.statistics[0], None, measured.statistics[2]))
    candidates = half.align(found.candidates)
    view = Fusion().compare(candidates, candidates.present)
    assert (view.energy == found.candidates.energy).all()


def test_the_difficulty_equals_that_of_the_engine():
    """Compare with the engine, with fitted quantiles and with the shipped ones."""
    records = population(size=40)
    found = evidence_of(records, 0.1)
    for statistics in (fit_statistics(found), (None, None, None)):
        now = setup(statistics=statistics, clearly_hard=load_settings("tiny").routing.clearly_hard)
        assert (now.tables is None) == (statistics[0] is None)
        for record, d in zip(records, now.route(found.fast).difficulty, strict=True):
            expected, _ = PosteriorDifficulty.load().look(
                recorded_signals(record.attempts[0], record.difficulty), now.tables
            )
            assert d == pytest.approx(record.difficulty if record.difficulty >= now.clearly_hard else expected)


def test_the_prior_decides_without_signals():
    found = evidence(size=20)
    nothing = np.full(20, np.nan)
    unknown = replace(found.fast.signals, length=nothing, mean_logprob=nothing, answer_logprob=nothing)
    assert (setup().route(replace(found.fast, signals=unknown)).difficulty == found.fast.prior).all()


def test_quantiles_are_measured_without_log_probabilities():
    found = evidence(size=40)
    nothing = np.full(40, np.nan)
    silent = replace(found.fast.signals, mean_logprob=nothing, answer_logprob=nothing)
    known = statistics_of(nothing, silent)
    assert (known.count, set(known.quantiles["reasoned"])) == (0, {"length", "prior"})


def test_one_outlier_changes_the_statistics_little():
    values = np.random.default_rng(0).normal(0.2, 0.1, 300)
    plain, robust = statistics_of(values), statistics_of(np.append(values, 1e6))
    assert robust.mean == pytest.approx(plain.mean, abs=0.02)
    assert robust.deviation == pytest.approx(plain.deviation, rel=0.2)


def test_no_energies_give_no_statistics():
    assert statistics_of(np.array([np.nan])) is None
    assert statistics_of(np.full(5, 0.2)).deviation == 1.0
