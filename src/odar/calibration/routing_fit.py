"""Thresholds, and which of the fitted estimators decide: the most accuracy per cost that loses none (SPEC 2.7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from odar.calibration.policy import Outcomes
from odar.calibration.setup import Thresholds
from odar.calibration.votes import Array
from odar.difficulty.estimator import LearnedEstimator
from odar.difficulty.posterior import PosteriorDifficulty

GRID_1 = (0.2, 0.3, 0.4)
GRID_2 = (0.6, 0.7, 0.8)
"""The thresholds that are tried (SPEC 2.7)."""
SHARES = (0.25, 0.5, 0.75, 0.9, 0.97)
"""And those that leave such shares of the items below them: a model that is mostly wrong has no d under 0.4."""

LOSS = 0.01
"""Of accuracy; a loss beyond this on held-out folds is not installed, and half of it is not risked in choosing."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to a difficulty, and the difficulty of every item by it."""

    estimator: LearnedEstimator | None
    posterior: PosteriorDifficulty | None
    difficulty: Array
    """Of fits that had not seen the item, where something was fitted."""


def fit_routing(
    result: Outcomes, variants: Sequence[Variant], thresholds: Thresholds, today: Array
) -> tuple[Variant, Thresholds] | None:
    """The variant and thresholds with the most accuracy per cost among those that lose nothing against today.

    Of equals the first variant is taken, and the thresholds in use. None where every choice loses.

    Args:
        result: what each path gives for each item.
        variants: the ways to a difficulty.
        thresholds: those in use.
        today: right or wrong of each item as things are.
    """
    choices = []
    for variant in variants:
        for point in points(variant.difficulty, thresholds):
            right, efficiency = score(result, variant.difficulty, point)
            if holds(right - today):
                choices.append((efficiency, variant, point))
    if not choices:
        return None
    _, variant, point = max(choices, key=lambda choice: choice[0])
    return variant, point


def holds(difference: Array) -> bool:
    """Whether accuracy is not lost: not on these items, nor by half a point if they were unlucky by one σ.

    Among many cheap points some reach the accuracy of today by luck alone; on other items they would not.
    """
    error = float(difference.std() / np.sqrt(len(difference)))
    return bool(difference.mean() >= 0 and difference.mean() - error >= -LOSS / 2)


def points(difficulty: Array, today: Thresholds) -> Iterator[Thresholds]:
    """What is tried: the thresholds in use, the paper's grid, and shares of the items."""
    shares = [*(round(float(each), 3) for each in np.quantile(difficulty, SHARES)), 1.0]
    yield today
    for tau1 in (*GRID_1, *shares):
        for tau2 in (*GRID_2, *shares):
            if tau1 <= tau2:
                yield Thresholds(tau1, tau2)


def score(result: Outcomes, difficulty: Array, point: Thresholds) -> tuple[Array, float]:
    """Right or wrong of each item, and accuracy per US dollar; per call where none are known or charged."""
    right, calls, cost = result.under(point.paths(difficulty))
    price = float(cost.mean())
    return right, float(right.mean() / (price if price > 0 else calls.mean()))
