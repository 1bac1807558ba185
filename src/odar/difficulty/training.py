"""Training of an estimator on a user's own queries: targets d*, the fit, and cross-validated predictions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odar.difficulty.estimator import LearnedEstimator
from odar.errors import InputError

Array = NDArray[np.float64]
ALPHA = 0.5
SEEDS = (42, 123, 456)
EPOCHS = 50
"""Number of epochs in the paper."""
STEPS = 10_000
"""Minimum number of steps: with few rows, Adam does not converge in 50 epochs."""
START_PENALTY = 2.0
"""λ times rows for ‖W − W_start‖²: the variance of d* (0.14²) over that of the weights around the start (0.1²)."""
MIN_ROWS = 40
"""Minimum number of rows for a fit that starts from another estimator."""


def d_star(failure: ArrayLike, effort: ArrayLike | None = None, alpha: float = ALPHA) -> Array:
    """Return the targets of SPEC 2.5: α·T/max T + (1 − α)·(1 − Acc_fast), or the failure alone where T is NaN.

    The longest one per cent count as max T: a single outlier would push all others to zero.

    >>> d_star([1.0, 0.0], [10.0, 5.0]).round(2).tolist(), d_star([0.25]).tolist()
    ([1.0, 0.25], [0.25])
    """
    failed: Array = np.clip(np.asarray(failure, float), 0, 1)
    if effort is None:
        return failed
    time = np.asarray(effort, float)
    known = np.isfinite(time)
    if not known.any() or np.quantile(time[known], 0.99) <= 0:
        return failed
    share = np.clip(time / np.quantile(time[known], 0.99), 0, 1)
    return np.where(known, alpha * share + (1 - alpha) * failed, failed)


def check_row_count(rows: int) -> None:
    """Raise InputError if there are too few rows to fit 24 weights."""
    if rows < MIN_ROWS:
        raise InputError(f"{rows} rows cannot teach an estimator; at least {MIN_ROWS} are needed")


def fit_features(
    x: Array,
    targets: ArrayLike,
    *,
    start: LearnedEstimator | None = None,
    seeds: Sequence[int] = SEEDS,
    epochs: int | None = None,
) -> LearnedEstimator:
    """Fit an estimator to the features of queries and their d* in [0, 1] (SPEC 2.6).

    Args:
        x: φ of each query, (n, 24); see `phi_batch`.
        targets: difficulty of each query; see `d_star`.
        start: estimator to start from and to stay near; for few rows, `shipped_estimator()`.
        seeds: one run each; their weights are averaged.
        epochs: passes over the data; by default 50, or more if there are few rows.
    """
    epochs = epochs or max(EPOCHS, math.ceil(STEPS * 32 / len(x)))
    l2 = START_PENALTY / len(x) if start else 0.01
    return LearnedEstimator(l2=l2, epochs=epochs, seeds=tuple(seeds), start=start).fit(x, targets)


def cross_predict(
    x: Array,
    targets: Array,
    *,
    start: LearnedEstimator | None = None,
    seed: int = SEEDS[0],
    epochs: int | None = None,
    folds: int = 5,
) -> Array:
    """Return d of every row, predicted by an estimator that was fitted to the other folds."""
    fold = np.random.default_rng(seed).permutation(len(x)) % folds
    predicted = np.zeros(len(x))
    for held_out in range(folds):
        seen = fold != held_out
        model = fit_features(x[seen], targets[seen], start=start, seeds=(seed,), epochs=epochs)
        predicted[~seen] = model.predict(x[~seen])
    return predicted
