"""Training of the learned difficulty estimator (SPEC 2.5, 2.6): Adam on MSE + λ‖W‖²."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from odar.difficulty.estimator import IDENTITY, IS_COUNT, LearnedEstimator, Scaling, logarithmic, sigmoid
from odar.difficulty.features import FEATURES, PARSED
from odar.errors import InputError
from odar.policy.arrays import Array

SEEDS = (42, 123, 456)
"""Random seeds of SPEC 7.4."""
EPOCHS = 50
"""Number of epochs in the paper."""
STEPS = 10_000
"""Minimum number of steps: with few rows, Adam does not converge in 50 epochs."""
LEARNING_RATE = 1e-3
L2 = 0.01
"""λ of the paper."""
START_PENALTY = 2.0
"""λ times rows for ‖W − W_start‖²: the variance of d* (0.14²) over that of the weights around the start (0.1²)."""
MIN_ROWS = 40
"""Minimum number of rows for a fit that starts from another estimator."""
_PARSED_SPREAD = 1.5
"""Standard deviations to which f9, f10 and f13 are clipped, so that d differs little without the parse."""
_PARSE_PENALTY = 40.0
"""Factor of λ for f9, f10 and f13, which need the expensive parse."""
_BATCH = 32


def fit(
    x: ArrayLike,
    targets: ArrayLike,
    row_weights: ArrayLike | None = None,
    *,
    start: LearnedEstimator | None = None,
    seeds: Sequence[int] = SEEDS,
    epochs: int | None = None,
) -> LearnedEstimator:
    """Fit an estimator to the features of queries and their d* in [0, 1] (SPEC 2.6).

    Args:
        x: φ of each query, (n, 24); see `phi_batch`.
        targets: difficulty of each query; see `d_star`.
        row_weights: how much each row counts; None: all alike.
        start: estimator whose scaling and map are used, and whose weights the fit starts from and is regularised
            to: λ‖W − W_start‖²; None: to train from scratch.
        seeds: one run each; their weights are averaged, which for a linear unit is the mean logit.
        epochs: passes over the data; by default 50, or more if there are few rows.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(400, 24))
    >>> y = 1 / (1 + np.exp(-x[:, 3]))
    >>> bool(np.corrcoef(fit(x, y, seeds=(1,)).predict(x), y)[0, 1] > 0.95)
    True
    """
    features = np.asarray(x, float)
    target = np.asarray(targets, float)
    if features.ndim != 2 or features.shape[1] != len(FEATURES) or len(features) != len(target):
        raise InputError(
            f"features of shape {features.shape} and {len(target)} targets; expected (n, {len(FEATURES)})"
        )
    if not len(target) or not np.isfinite(features).all() or not ((target >= 0) & (target <= 1)).all():
        raise InputError("training needs at least one row, finite features and targets in [0, 1]")
    epochs = epochs or max(EPOCHS, math.ceil(STEPS * _BATCH / len(target)))
    l2 = START_PENALTY / len(target) if start else L2
    weight = np.ones(len(target)) if row_weights is None else np.asarray(row_weights, float)
    weight = weight / weight.mean()
    origin = start or LearnedEstimator(np.zeros(len(FEATURES)), 0.0, fit_scaling(features), IDENTITY)
    # one run for each seed
    z = origin.scaling(features)
    models = []
    for seed in seeds:
        theta = _adam(origin, z, target, weight, epochs, l2, np.random.default_rng(seed))
        models.append(replace(origin, weights=theta[:-1], bias=float(theta[-1])))
    losses = [np.average((model.predict(features) - target) ** 2, weights=weight) for model in models]
    return LearnedEstimator(
        np.mean([model.weights for model in models], axis=0),
        float(np.mean([model.bias for model in models])),
        origin.scaling,
        origin.map,
        training={
            "learning_rate": LEARNING_RATE,
            "batch_size": _BATCH,
            "l2": l2,
            "epochs": epochs,
            "seeds": list(seeds),
            "runs": [{"seed": seed, "mse": float(loss)} for seed, loss in zip(seeds, losses, strict=True)],
        },
    )


def _adam(
    origin: LearnedEstimator,
    z: Array,
    target: Array,
    weight: Array,
    epochs: int,
    l2: float,
    rng: np.random.Generator,
) -> Array:
    """The weights and the bias of one run, as one vector. The bias is not regularised."""
    start = np.append(origin.weights, origin.bias)
    theta = start.copy()
    first_moment = np.zeros_like(theta)
    second_moment = np.zeros_like(theta)
    padded = np.column_stack([z, np.ones(len(z))])  # rows × (24 features, and 1 for the bias)
    penalty = np.append(np.full(z.shape[1], l2), 0.0)
    penalty[list(PARSED)] *= _PARSE_PENALTY
    knots = np.array(origin.map)
    slopes = np.diff(knots[:, 1]) / np.diff(knots[:, 0])
    step = 0
    for _ in range(epochs):
        order = rng.permutation(len(z))
        for begin in range(0, len(z), _BATCH):
            rows = order[begin : begin + _BATCH]
            raw = sigmoid(padded[rows] @ theta)
            segment = np.searchsorted(knots[1:-1, 0], raw, side="right")
            d = knots[segment, 1] + slopes[segment] * (raw - knots[segment, 0])
            error = weight[rows] * (d - target[rows])
            logit_gradient = 2 * error * slopes[segment] * raw * (1 - raw) / len(rows)
            gradient = logit_gradient @ padded[rows] + 2 * penalty * (theta - start)
            step += 1
            first_moment = 0.9 * first_moment + 0.1 * gradient
            second_moment = 0.999 * second_moment + 0.001 * gradient**2
            rate = LEARNING_RATE * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
            theta -= rate * first_moment / (np.sqrt(second_moment) + 1e-8)
    return theta


def fit_scaling(x: Array) -> Scaling:
    """Means, deviations and bounds. The scale of a constant feature is 1; flags are not clipped.

    f9, f10 and f13 are centred at the middle of their bounds, where they add nothing to the logit.
    """
    # x is rows × features; all others have an entry for each feature
    is_flag = ((x == 0) | (x == 1)).all(axis=0) & ~IS_COUNT
    x = logarithmic(x)
    low, high = np.quantile(x, [0.005, 0.995], axis=0)
    low[is_flag] = 0.0
    high[is_flag] = 1.0
    # narrower bounds for f9, f10 and f13
    parsed = list(PARSED)
    clipped = np.clip(x, low, high)
    mean = clipped.mean(axis=0)
    spread = _PARSED_SPREAD * clipped.std(axis=0)
    low[parsed] = (mean - spread)[parsed]
    high[parsed] = (mean + spread)[parsed]
    clipped = np.clip(x, low, high)
    mean = clipped.mean(axis=0)
    deviation = clipped.std(axis=0)
    mean[parsed] = (low + high)[parsed] / 2
    return Scaling(mean, np.where(deviation > 1e-9, deviation, 1.0), low, high)


def d_star(failure: ArrayLike, effort: ArrayLike) -> Array:
    """The targets of SPEC 2.5: ½·T/max T + ½·(1 − Acc_fast), or the failure alone where T is NaN.

    The longest one per cent count as max T: a single outlier would push all others to zero.

    >>> d_star([1.0, 0.0, 0.25], [10.0, 5.0, np.nan]).round(2).tolist()
    [1.0, 0.25, 0.25]
    """
    failed: Array = np.clip(np.asarray(failure, float), 0, 1)
    time = np.asarray(effort, float)
    known = np.isfinite(time)
    if not known.any() or np.quantile(time[known], 0.99) <= 0:
        return failed
    share = np.clip(time / np.quantile(time[known], 0.99), 0, 1)
    return np.where(known, 0.5 * share + 0.5 * failed, failed)


def check_row_count(rows: int) -> None:
    """Raise InputError if there are too few rows to fit 24 weights."""
    if rows < MIN_ROWS:
        raise InputError(f"{rows} rows cannot teach an estimator; at least {MIN_ROWS} are needed")


def cross_val_predict(
    x: Array, targets: Array, start: LearnedEstimator | None = None, epochs: int | None = None
) -> Array:
    """d of every row, predicted by an estimator that was fitted to the other four fifths of the rows."""
    seed = SEEDS[0]
    fold = np.random.default_rng(seed).permutation(len(x)) % 5
    predicted = np.zeros(len(x))
    for held_out in range(5):
        seen = fold != held_out
        model = fit(x[seen], targets[seen], start=start, seeds=(seed,), epochs=epochs)
        predicted[~seen] = model.predict(x[~seen])
    return predicted
