"""Training an estimator on given queries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.difficulty.estimator import COUNTS, shipped_estimator
from odar.difficulty.features import FEATURES, phi_batch
from odar.errors import InputError
from odar.lab.training import cross_val_predict, d_star, fit, fit_scaling
from odar.types import Query

UNIT = st.floats(0, 1)


def world(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return features and difficulties: long queries are hard, those with a question mark easy."""
    rng = np.random.default_rng(seed)
    mean = shipped_estimator().scaling.mean
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
        model = fit(x, d, start=start, seeds=(1,))
        assert np.corrcoef(model.predict(fresh), truth)[0, 1] > 0.9
        assert model.training["seeds"] == [1]


def test_few_rows_change_the_weightsless_than_many() -> None:
    origin = shipped_estimator().weights
    moved = [
        np.linalg.norm(fit(*world(n), start=shipped_estimator(), seeds=(1,)).weights - origin) for n in (40, 2000)
    ]
    assert moved[0] < moved[1]


def test_a_start_keeps_its_scalingand_weightsof_constant_features() -> None:
    start = shipped_estimator()
    model = fit(*world(100), start=start, seeds=(1,))
    assert model.scaling is start.scaling
    still = [i for i, f in enumerate(FEATURES) if f not in ("word_count", "question_marks")]
    np.testing.assert_allclose(model.weights[still], start.weights[still], atol=1e-3)


def test_held_out_predictions_do_not_see_their_row() -> None:
    x, _ = world(250)
    noise = np.random.default_rng(5).uniform(size=250)
    held_out = cross_val_predict(x, noise, epochs=40)
    assert abs(np.corrcoef(held_out, noise)[0, 1]) < 0.25
    x, d = world(250)
    assert np.corrcoef(cross_val_predict(x, d), d)[0, 1] > 0.9


def test_texts_are_told_apart() -> None:
    queries = [Query(f"What is {n} plus {n}?") for n in range(20)] + [Query("Prove that 2 is prime. " * 3)] * 20
    model = fit(phi_batch(queries), [0.1] * 20 + [0.9] * 20, start=shipped_estimator(), seeds=(1,))
    easy, hard = (model.estimate(queries[i]).difficulty for i in (0, -1))
    assert easy < 0.3 < 0.7 < hard


def test_a_refit_keeps_the_map_and_learns_mapped_difficulties() -> None:
    shipped = shipped_estimator()
    rng = np.random.default_rng(0)
    x = shipped.scaling.mean + shipped.scaling.scale * rng.normal(size=(400, 24))
    y = np.clip(shipped.predict(x) + 0.3, 0, 1)
    model = fit(x, y, start=shipped, epochs=200, seeds=(1,))
    assert model.map == shipped.map
    assert abs(model.predict(x) - y).mean() < abs(shipped.predict(x) - y).mean() / 2


def test_the_seed_determines_the_weights() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(100, 24)), rng.uniform(size=100)
    a, b, c = (fit(x, y, epochs=2, seeds=s).weights for s in ((1,), (1,), (2,)))
    assert (a == b).all() and (a != c).any()


def test_weighted_rows_count_more() -> None:
    x, y = np.zeros((40, 24)), np.r_[np.zeros(20), np.ones(20)]
    model = fit(x, y, np.r_[np.ones(20), np.full(20, 3.0)], epochs=2000, seeds=(1,))
    assert model.predict(x)[0] == pytest.approx(0.75, abs=0.05)


def test_scaling_does_not_extrapolate() -> None:
    x = np.random.default_rng(0).normal(size=(1000, 24))
    scaling = fit_scaling(x)
    assert (scaling(np.full((1, 24), 1e6)) == scaling(np.full((1, 24), 1e9))).all()
    assert scaling(np.full((1, 24), 1e6)).max() < 5


def test_counts_are_scaled_as_logarithms_and_flags_are_not() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 100, size=(500, 24)).astype(float)
    x[:, FEATURES.index("has_digit")] = rng.integers(0, 2, 500)
    scaling = fit_scaling(x)
    words, digit = FEATURES.index("word_count"), FEATURES.index("has_digit")
    rows = np.tile(x.mean(axis=0), (3, 1))
    rows[:, words] = np.expm1([1, 2, 3])
    z = scaling(rows)[:, words]
    assert z[2] - z[1] == pytest.approx(z[1] - z[0])
    assert (scaling.low[digit], scaling.high[digit]) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (np.zeros((3, 23)), [0.0] * 3), (np.zeros((3, 24)), [0.0] * 2), (np.zeros((1, 24)), [1.5]),
        (np.full((1, 24), np.nan), [0.5]), (np.zeros((0, 24)), []),
    ],
)  # fmt: skip
def test_invalid_training_data_is_rejected(x: np.ndarray, y: list[float]) -> None:
    with pytest.raises(InputError):
        fit(x, y, epochs=1)
