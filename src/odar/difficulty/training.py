"""An estimator for one's own queries: targets d*, the fit, and predictions by fits that did not see the row."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odar.difficulty.estimator import LearnedEstimator
from odar.difficulty.features import FEATURES, phi_batch
from odar.errors import InputError
from odar.types import Query

Array = NDArray[np.float64]
ALPHA = 0.5
SEEDS = (42, 123, 456)
EPOCHS = 50
STEPS = 10_000
"""With few rows the paper's 50 epochs end long before Adam arrives; as many steps as this are taken at least."""
PULL = 2.0
"""λ·rows of the pull to the start: the noise of d* (0.14²) over how far off its weights may be (0.1²)."""
FEWEST = {"scratch": 200, "start": 40}
"""Rows below which 24 weights cannot be learned, from nothing and from an estimator to start from."""
CHUNK = 256


def d_star(failure: ArrayLike, effort: ArrayLike | None = None, alpha: float = ALPHA) -> Array:
    """The target of SPEC 2.5: α·T/max T + (1 − α)·(1 − Acc_fast). Rows without a T (nan) have the failure alone.

    The longest one per cent count as max T: one absurd solution would push all others to zero.

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


def fit_features(
    x: ArrayLike,
    targets: ArrayLike,
    *,
    start: LearnedEstimator | None = None,
    seed: int | Sequence[int] = SEEDS,
    epochs: int | None = None,
) -> LearnedEstimator:
    """d(x) learned from the features of queries and their d* in [0, 1] (SPEC 2.6).

    Args:
        x: φ of each query, (n, 24); see `extract`.
        targets: how hard each turned out to be; see `d_star`.
        start: an estimator to begin with and stay near: for few rows, `shipped_estimator()`.
        seed: one, or several whose runs are averaged.
        epochs: passes over the data; None takes the paper's 50, more where rows are few.
    """
    features = np.asarray(x, float)
    check_enough(len(features), start)
    return _fit(features, targets, start, (seed,) if isinstance(seed, int) else tuple(seed), epochs)


def check_enough(rows: int, start: LearnedEstimator | None = None) -> None:
    """Raise InputError if so few rows cannot teach 24 weights."""
    needed = FEWEST["start" if start else "scratch"]
    if rows < needed:
        remedy = "" if start else f", or {FEWEST['start']} to start from the shipped estimator"
        raise InputError(f"{rows} rows cannot teach an estimator; at least {needed} are needed{remedy}")


def cross_predict(
    x: Array,
    targets: Array,
    *,
    start: LearnedEstimator | None = None,
    seed: int = SEEDS[0],
    epochs: int | None = None,
    folds: int = 5,
) -> Array:
    """d of every row, each by a fit that has not seen it."""
    fold = np.random.default_rng(seed).permutation(len(x)) % folds
    predicted = np.zeros(len(x))
    for held_out in range(folds):
        seen = fold != held_out
        predicted[~seen] = _fit(x[seen], targets[seen], start, (seed,), epochs).predict(x[~seen])
    return predicted


def extract(queries: Sequence[Query], on_progress: Callable[[int], None] | None = None) -> Array:
    """φ of many queries, (n, 24), a batch at a time."""
    parts = []
    for at in range(0, len(queries), CHUNK):
        parts.append(phi_batch(queries[at : at + CHUNK]))
        if on_progress is not None:
            on_progress(min(at + CHUNK, len(queries)))
    return np.concatenate(parts) if parts else np.zeros((0, len(FEATURES)))


def _fit(
    x: Array, targets: ArrayLike, start: LearnedEstimator | None, seeds: tuple[int, ...], epochs: int | None
) -> LearnedEstimator:
    epochs = epochs or max(EPOCHS, math.ceil(STEPS * 32 / len(x)))
    return LearnedEstimator(l2=PULL / len(x) if start else 0.01, epochs=epochs, seeds=seeds, start=start).fit(
        x, targets
    )
