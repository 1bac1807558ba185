from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from odar.calibration.statistics_fit import fit_statistics, statistics_of
from odar.config import load_settings
from odar.policy.alignment import Statistics
from odar.policy.fusion import Fusion
from odar.policy.path import Thresholds
from odar.policy.posterior import PosteriorDifficulty
from support.population import evidence, setup


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


def test_the_difficulty_is_the_one_the_engine_would_use():
    """The same numbers through the engine's own code."""
    found = evidence(size=20)
    known = Statistics(0.25, 0.1, 100, log_tokens_mean=3.0, log_tokens_deviation=0.5)
    now = setup(statistics=(known, None, None), clearly_hard=load_settings("tiny").routing.clearly_hard)
    posterior = PosteriorDifficulty.load()
    for row, d in enumerate(now.route(found.fast).difficulty):
        prior, tokens = float(found.fast.prior[row]), round(float(np.expm1(found.fast.log_tokens[row])))
        if prior >= now.clearly_hard:
            assert d == prior
            continue
        aligned = known.alignment.align(float(found.fast.energy[row]))
        assert d == pytest.approx(
            posterior.update(prior, unsureness=aligned, log_tokens=known.length_score(tokens))
        )


def test_without_statistics_the_prior_decides():
    found = evidence(size=20)
    assert (setup().route(found.fast).difficulty == found.fast.prior).all()
    unscored = replace(found.fast, energy=np.full(20, np.nan))
    measured = setup(statistics=fit_statistics(found))
    assert (measured.route(unscored).difficulty == found.fast.prior).all()


def test_one_absurd_energy_does_not_move_the_statistics():
    values = np.random.default_rng(0).normal(0.2, 0.1, 300)
    plain, robust = statistics_of(values), statistics_of(np.append(values, 1e6))
    assert robust.mean == pytest.approx(plain.mean, abs=0.02)
    assert robust.deviation == pytest.approx(plain.deviation, rel=0.2)


def test_no_energy_no_statistics():
    assert statistics_of(np.array([np.nan])) is None
    same = statistics_of(np.full(5, 0.2), np.full(5, 3.0))
    assert (same.deviation, same.log_tokens_deviation) == (1.0, 1.0)
