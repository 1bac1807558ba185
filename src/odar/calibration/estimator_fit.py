"""The estimator fitted to one's own questions: it starts from the one in use and stays near it (SPEC 2.5, 2.6)."""

from __future__ import annotations

import math

from odar.calibration.evidence import FastAnswers
from odar.calibration.part import Part, compare
from odar.difficulty.estimator import LearnedEstimator
from odar.difficulty.training import FEWEST, cross_predict, fit_features
from odar.policy.path import Thresholds
from odar.policy.rules import Array

STEPS = 3000
"""Of Adam; from a start that is nearly right, more change the third digit of d."""
MEASURE = "squared error of d*"
SPEC_THRESHOLDS = Thresholds(0.3, 0.7)


def fit_estimator_part(
    fast: FastAnswers,
    in_use: LearnedEstimator | None,
    seed: int = 42,
    thresholds: Thresholds = SPEC_THRESHOLDS,
) -> Part[LearnedEstimator]:
    """Weights for these items' d*, judged on folds they were not fitted to.

    Weights that put fewer of the held-out items on the path their d* asks for are not used, whatever their error.
    """
    least = math.ceil(FEWEST["start"] / 0.8)  # four folds of five are fitted to
    if in_use is None or fast.features is None:
        return _none(fast, "the estimator in use is not the learned one")
    if len(fast) < least:
        return _none(fast, f"{least} items are needed, {least - len(fast)} more")
    target = fast.target
    epochs = math.ceil(STEPS * 32 / len(fast))
    held_out = cross_predict(fast.features, target, start=in_use, seed=seed, epochs=epochs)
    before, after = (right_paths(d, target, thresholds) for d in (fast.prior, held_out))
    if after < before:
        return _none(fast, f"the share of right paths would fall from {before:.1%} to {after:.1%}")
    model = fit_features(fast.features, target, start=in_use, seed=seed, epochs=epochs)
    gain = compare((held_out - target) ** 2, (fast.prior - target) ** 2)
    return Part("estimator", model, held_out, gain, MEASURE)


def right_paths(d: Array, target: Array, thresholds: Thresholds) -> float:
    """The share of items on the path that their d* asks for.

    >>> import numpy as np
    >>> right_paths(np.array([0.1, 0.5]), np.array([0.2, 0.8]), Thresholds(0.3, 0.7))
    0.5
    """
    return float((thresholds.paths(d) == thresholds.paths(target)).mean())


def _none(fast: FastAnswers, why: str) -> Part[LearnedEstimator]:
    return Part("estimator", None, fast.prior, None, MEASURE, why)
