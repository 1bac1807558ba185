"""The estimator fitted to one's own questions: it starts from the one in use and stays near it (SPEC 2.5, 2.6)."""

from __future__ import annotations

import math

from odar.calibration.evidence import FastAnswers
from odar.calibration.part import Part, compare
from odar.difficulty.estimator import LearnedEstimator
from odar.difficulty.training import FEWEST, cross_predict, fit_features

STEPS = 3000
"""Of Adam; from a start that is nearly right, more change the third digit of d."""
MEASURE = "squared error of d*"


def fit_estimator_part(
    fast: FastAnswers, in_use: LearnedEstimator | None, seed: int = 42
) -> Part[LearnedEstimator]:
    """Weights for these items' d*, judged on folds they were not fitted to."""
    least = math.ceil(FEWEST["start"] / 0.8)  # four folds of five are fitted to
    if in_use is None or fast.features is None:
        return _none(fast, "the estimator in use is not the learned one")
    if len(fast) < least:
        return _none(fast, f"{least} items are needed, {least - len(fast)} more")
    target = fast.target
    epochs = math.ceil(STEPS * 32 / len(fast))
    held_out = cross_predict(fast.features, target, start=in_use, seed=seed, epochs=epochs)
    model = fit_features(fast.features, target, start=in_use, seed=seed, epochs=epochs)
    gain = compare((held_out - target) ** 2, (fast.prior - target) ** 2)
    return Part("estimator", model, held_out, gain, MEASURE)


def _none(fast: FastAnswers, why: str) -> Part[LearnedEstimator]:
    return Part("estimator", None, fast.prior, None, MEASURE, why)
