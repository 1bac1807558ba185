"""Fitted parts, each with its error compared with the part in use; and the first of them, the estimator.

The estimator is fitted to the user's questions starting from the one in use, and stays near it (SPEC 2.5, 2.6).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from odar.calibration.bootstrap import Interval, bootstrap_mean
from odar.calibration.evidence import FastAnswers
from odar.difficulty.estimator import LearnedEstimator
from odar.difficulty.training import FEWEST, cross_predict, fit_features
from odar.policy.path import Thresholds
from odar.policy.rules import Array, Ints

M = TypeVar("M")
STEPS = 3000
"""Steps of Adam; from a start that is nearly right, more change the third digit of d."""
SPEC_THRESHOLDS = Thresholds(0.3, 0.7)


@dataclass(frozen=True, slots=True)
class Part(Generic[M]):
    """A fitted model and its error on held-out items, compared with the model in use."""

    name: str
    model: M | None
    """None if nothing could be fitted."""
    held_out: Array
    """Prediction for each item by a fit without that item; without a fit, that of the model in use."""
    gain: Interval | None
    """How much lower its error on held-out items is than that of the model in use."""
    measure: str
    """What error that is."""
    note: str = ""
    """Why nothing could be fitted."""

    @property
    def better(self) -> bool:
        """Whether even the low end of its gain is above 0."""
        return self.gain is not None and self.gain.low > 0


def compare(errors: Array, errors_in_use: Array) -> Interval:
    """The gain of one model over another, paired by item."""
    return bootstrap_mean(errors_in_use - errors, shares=False)


def folds(count: int, seed: int, number: int = 5) -> Ints:
    """A fold for each item."""
    return np.random.default_rng(seed).permutation(count) % number


def fit_estimator_part(
    fast: FastAnswers,
    in_use: LearnedEstimator | None,
    seed: int = 42,
    thresholds: Thresholds = SPEC_THRESHOLDS,
) -> Part[LearnedEstimator]:
    """Fit weights to these items' d* and judge them on folds they were not fitted to.

    Weights that put fewer of the held-out items on the path of their d* are not used, even if their error is lower.
    """
    measure = "squared error of d*"

    def unfitted(why: str) -> Part[LearnedEstimator]:
        return Part("estimator", None, fast.prior, None, measure, why)

    least = math.ceil(FEWEST["start"] / 0.8)  # a fit sees four folds of five
    if in_use is None or fast.features is None:
        return unfitted("the estimator in use is not the learned one")
    if len(fast) < least:
        return unfitted(f"{least} items are needed, {least - len(fast)} more")
    target, epochs = fast.target, math.ceil(STEPS * 32 / len(fast))
    held_out = cross_predict(fast.features, target, start=in_use, seed=seed, epochs=epochs)
    due = thresholds.paths(target)
    before, after = (float((thresholds.paths(d) == due).mean()) for d in (fast.prior, held_out))
    if after < before:
        return unfitted(f"the share of right paths would fall from {before:.1%} to {after:.1%}")
    model = fit_features(fast.features, target, start=in_use, seed=seed, epochs=epochs)
    gain = compare((held_out - target) ** 2, (fast.prior - target) ** 2)
    return Part("estimator", model, held_out, gain, measure)
