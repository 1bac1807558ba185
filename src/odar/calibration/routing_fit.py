"""Thresholds, and which of the fitted parts decide: the most accuracy per cost that is not worse (SPEC 2.7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from odar.calibration.fusion_fit import FusionFit
from odar.calibration.setup import PathOutcomes
from odar.difficulty.estimator import LearnedEstimator
from odar.policy.path import Thresholds
from odar.policy.posterior import PosteriorDifficulty
from odar.policy.rules import Array

GRID_1 = (0.2, 0.3, 0.4)
GRID_2 = (0.6, 0.7, 0.8)
"""The thresholds that are tried (SPEC 2.7)."""
SHARES = (0.25, 0.5, 0.75, 0.9, 0.97)
"""And those that leave such shares of the items below them: a model that is mostly wrong has no d under 0.4."""
RISK = 0.005
"""Of accuracy, in choosing: less than a fit may lose when it is judged, as the best of many is best by luck too."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to a difficulty and to a choice among candidates, and what they make of every item."""

    estimator: LearnedEstimator | None
    posterior: PosteriorDifficulty | None
    difficulty: Array
    """Of fits that had not seen the item, where something was fitted."""
    fusion: FusionFit
    outcomes: PathOutcomes
    """What each path gives for each item under that fusion rule."""


def fit_routing(
    variants: Sequence[Variant], thresholds: Thresholds, today: Array
) -> tuple[Variant, Thresholds] | None:
    """The variant and thresholds with the most accuracy per cost among those that lose nothing against today.

    Of equals the first variant is taken, and the thresholds in use. None where every choice loses.

    Args:
        variants: what may decide, the most fitted first.
        thresholds: those in use.
        today: right or wrong of each item as things are.
    """
    best, most = None, (-np.inf, -np.inf)
    for variant in variants:
        for point in points(variant.difficulty, thresholds):
            right, price = walk(variant, point)
            efficiency = score(right, price)
            if efficiency > most and holds(right - today):
                best, most = (variant, point), efficiency
    return best


def holds(difference: Array) -> bool:
    """Whether accuracy is not lost: not on these items, nor by half a point if they were unlucky by one σ.

    Among many cheap points some reach the accuracy of today by luck alone; on other items they would not.
    """
    error = float(difference.std() / np.sqrt(len(difference)))
    return bool(difference.mean() >= 0 and difference.mean() - error >= -RISK)


def points(difficulty: Array, today: Thresholds) -> Iterator[Thresholds]:
    """What is tried: the thresholds in use, the paper's grid, and shares of the items."""
    shares = [*(round(float(each), 3) for each in np.quantile(difficulty, SHARES)), 1.0]
    yield today
    for tau1 in (*GRID_1, *shares):
        for tau2 in (*GRID_2, *shares):
            if tau1 <= tau2:
                yield Thresholds(tau1, tau2)


def walk(variant: Variant, point: Thresholds) -> tuple[Array, Array]:
    """Right or wrong of each item under these thresholds, and its price."""
    paths, rows = point.paths(variant.difficulty), np.arange(len(variant.difficulty))
    return variant.outcomes.correct[rows, paths].astype(np.float64), variant.outcomes.price[rows, paths]


def score(right: Array, price: Array) -> tuple[float, float]:
    """Accuracy per price (SPEC 2.7), and accuracy, which tells apart what costs nothing."""
    accuracy, cost = float(right.mean()), float(price.mean())
    return accuracy / cost if cost > 0 else np.inf, accuracy
