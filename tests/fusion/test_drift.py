from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st

from odar.fusion.drift import alignment_row, drift
from odar.fusion.running import Running
from odar.fusion.statistics import Source, Statistics

CALIBRATED = Statistics(0.2, 0.1, 100)
SOURCE = Source("m", "0" * 32, 0.2, 0.9, 96, 0.1)


def served(mean, deviation, count, seed=0):
    shape = (mean / deviation) ** 2
    return Running.of(np.random.default_rng(seed).gamma(shape, mean / shape, count).tolist(), 0.0)


@profile(max_examples=200)
@given(st.integers(0, 10**6), st.integers(30, 2000))
def test_the_same_energies_do_not_drift(seed, count):
    found = drift(served(0.2, 0.1, count, seed), CALIBRATED)
    assert not found.drifting


@given(st.integers(0, 10**6))
@pytest.mark.parametrize("mean", [0.1, 0.3])
def test_a_mean_that_moves_by_a_deviation_is_seen(mean, seed):
    found = drift(served(mean, 0.09, 300, seed), CALIBRATED)
    assert found.drifting
    assert np.sign(found.z) == np.sign(mean - 0.2)


def test_a_deviation_that_doubles_is_seen():
    found = drift(served(0.2, 0.2, 400), CALIBRATED)
    assert found.drifting
    assert found.spread > 1.5


def test_a_small_move_is_not_news_however_sure():
    found = drift(served(0.225, 0.1, 100_000), Statistics(0.2, 0.1, 100_000))
    assert found.z > 20
    assert not found.drifting


def test_a_few_candidates_say_nothing():
    assert drift(served(0.9, 0.1, 29), CALIBRATED) is None
    assert drift(Running(), CALIBRATED) is None


@pytest.mark.parametrize("calibrated", [Statistics(0.2, 0.0, 100), Statistics(0.2, 0.1, 1)])
def test_a_calibration_of_nothing_is_no_reference(calibrated):
    assert drift(served(0.9, 0.1, 100), calibrated) is None


def test_a_row_says_what_is_used():
    many, few = served(0.9, 0.1, 100), served(0.9, 0.1, 10)
    assert alignment_row(SOURCE, "answer", CALIBRATED, many, 50).used == "calibrated"
    assert alignment_row(SOURCE, "answer", None, many, 50).used == "running"
    assert alignment_row(SOURCE, "answer", None, few, 50).used == "nothing"


def test_a_row_has_the_figures_of_both():
    row = alignment_row(SOURCE, "solve", CALIBRATED, served(0.9, 0.1, 100), 50)
    assert (row.model, row.step, row.seen, row.calibrated_mean, row.calibrated_deviation) == (
        "m",
        "solve",
        100,
        0.2,
        0.1,
    )
    assert row.running_mean == pytest.approx(0.9, rel=0.05)
    assert row.drifting
    assert row.drift_z > 4
    assert alignment_row(SOURCE, "solve", CALIBRATED, Running(), 50).drift_z is None
