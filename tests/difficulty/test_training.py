"""Training an estimator on given queries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.difficulty.estimator import (
    COUNTS,
    cross_predict,
    d_star,
    fit_features,
    shipped_estimator,
)
from odar.difficulty.features import FEATURES, phi_batch
from odar.types import Query

UNIT = st.floats(0, 1)


def world(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return features and difficulties: long queries are hard, those with a question mark easy."""
    rng = np.random.default_rng(seed)
    mean = shipped_estimator().scaling_.mean
    x = np.tile(np.where([f in COUNTS for f in FEATURES], np.expm1(mean), mean), (rows, 1))
    words, marks = FEATURES.index("word_count"), FEATURES.index("question_marks")
    x[:, words] = rng.uniform(5, 150, rows)
    x[:, marks] = rng.integers(0, 2, rows)
    d = 1 / (1 + np.exp(-(x[:, words] - 75) / 30 + 2 * x[:, marks]))
    return x, d


@given(st.lists(st.tuples(UNIT, st.floats(0, 1e6) | st.just(float("nan"))), min_size=1))
def test_targets_are_between_0_and_1(rows: list[tuple[float, float]]) -> None:
    d = d_star(*zip(*rows, strict=True))
    assert ((d >= 0) & (d <= 1)).all()


def test_target_is_half_time_half_failure() -> None:
    assert d_star([1, 0, 1, 0], [100, 100, 0, 0]).tolist() == [1.0, 0.5, 0.5, 0.0]


def test_the_target_without_a_time_is_the_failure_rate() -> None:
    assert d_star([0.3, 0.3], [np.nan, 10.0]).tolist() == [0.3, 0.65]
    assert d_star([0.3], [np.nan]).tolist() == d_star([0.3], [0.0]).tolist() == [0.3]


def test_one_outlier_time_does_not_change_the_others() -> None:
    d = d_star(np.zeros(1000), np.r_[np.full(999, 10.0), 1e9])
    assert d[0] == pytest.approx(0.5)


def test_training_works_from_scratch_and_from_a_start() -> None:
    x, d = world(400)
    fresh, _ = world(200, seed=1)
    truth = world(200, seed=1)[1]
    for start in (None, shipped_estimator()):
        model = fit_features(x, d, start=start, seeds=(1,))
        assert np.corrcoef(model.predict(fresh), truth)[0, 1] > 0.9
        assert model.seeds == (1,)


def test_few_rows_change_the_weights_less_than_many() -> None:
    origin = shipped_estimator().weights_
    moved = [
        np.linalg.norm(fit_features(*world(n), start=shipped_estimator(), seeds=(1,)).weights_ - origin)
        for n in (40, 2000)
    ]
    assert moved[0] < moved[1]


def test_a_start_keeps_its_scaling_and_weights_of_constant_features() -> None:
    start = shipped_estimator()
    model = fit_features(*world(100), start=start, seeds=(1,))
    assert model.scaling_ is start.scaling_
    still = [i for i, f in enumerate(FEATURES) if f not in ("word_count", "question_marks")]
    np.testing.assert_allclose(model.weights_[still], start.weights_[still], atol=1e-3)


def test_held_out_predictions_do_not_see_their_row() -> None:
    x, _ = world(250)
    noise = np.random.default_rng(5).uniform(size=250)
    held_out = cross_predict(x, noise, epochs=40)
    assert abs(np.corrcoef(held_out, noise)[0, 1]) < 0.25
    x, d = world(250)
    assert np.corrcoef(cross_predict(x, d), d)[0, 1] > 0.9


def test_texts_are_told_apart() -> None:
    queries = [Query(f"What is {n} plus {n}?") for n in range(20)] + [Query("Prove that 2 is prime. " * 3)] * 20
    model = fit_features(phi_batch(queries), [0.1] * 20 + [0.9] * 20, start=shipped_estimator(), seeds=(1,))
    easy, hard = (model.estimate(queries[i]).difficulty for i in (0, -1))
    assert easy < 0.3 < 0.7 < hard
