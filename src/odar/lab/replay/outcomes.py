"""Outcomes of policies on recorded items, their mixtures, and the frontier of fixed choices (SPEC 9.9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from odar.calibration_file import Setting
from odar.lab.recording.schema import MIN_RIGHT_SCORE
from odar.policy.arrays import Array, Bools, Ints
from odar.policy.dial import Dial
from odar.policy.paper import PATHS
from odar.types import Stage


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """The outcome of one policy; every array has an entry for each item."""

    score: Array
    """Score by the benchmark's metric, from 0 to 1."""
    cost_usd: Array
    calls: Array
    seconds: Array
    """Duration of the slowest chain of requests, as recorded; NaN if unknown."""
    tokens: Array
    """Generated tokens; NaN if unknown."""
    path: Ints
    """Number of the path in `PATHS`."""
    winner: Ints
    """Number of the attempt whose answer was taken; −1 for a mean over several runs."""
    best: Array
    """Score of the best answer that the policy has seen."""
    stages: tuple[tuple[Stage, ...], ...] = ()
    """The stages that were asked; empty for a mean over several runs."""
    name: str = ""
    note: str = ""
    """Explanation for readers of a table."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """What was tried, such as {"policy": "slow*3"} or {"policy": "cascade", "routing.dial": "7"}; empty if the name
    says it all."""

    def __len__(self) -> int:
        return len(self.score)

    @property
    def right(self) -> Bools:
        return self.score >= MIN_RIGHT_SCORE

    @property
    def mean_score(self) -> float:
        return float(self.score.mean())

    @property
    def mean_usd(self) -> float:
        """Dollars per item."""
        return float(self.cost_usd.mean())

    @property
    def mix(self) -> tuple[float, float, float]:
        """Shares of the Simple, Medium and Hard path."""
        simple, medium, hard = (float((self.path == number).mean()) for number in range(len(PATHS)))
        return simple, medium, hard

    @property
    def is_cascade(self) -> bool:
        return self.settings.get("policy") == "cascade"

    @property
    def cascade_name(self) -> str:
        """Its name without the dial, such as `cascade*5`: the same for cascades of the same stages."""
        return self.name.partition(" ")[0]

    @property
    def points(self) -> float:
        """The dial of a cascade, in points of accuracy."""
        return Dial.parse(str(self.settings["routing.dial"])).points

    def rows(self, index: Ints | Bools) -> Outcomes:
        """The outcome on some of the items."""
        stages = tuple(self.stages[row] for row in np.arange(len(self))[index]) if self.stages else ()
        return replace(self, **{name: getattr(self, name)[index] for name in ARRAYS}, stages=stages)


ARRAYS = ("score", "cost_usd", "calls", "seconds", "tokens", "path", "winner", "best")
"""The fields of `Outcomes` with an entry for each item."""


def combined(outcomes: Sequence[Outcomes], combine: Callable[[list[Any]], Any], **changes: Any) -> Outcomes:
    """Several outcomes as one: `combine` makes each array of theirs; the other fields are those of the first."""
    arrays = {name: combine([getattr(each, name) for each in outcomes]) for name in ARRAYS}
    return replace(outcomes[0], **{**arrays, "stages": (), **changes})


def mean_outcomes(runs: Sequence[Outcomes], note: str = "") -> Outcomes:
    """The mean of several runs of one policy, item by item; the paths are those of the first run."""
    winner = np.full(len(runs[0]), -1)
    return combined(runs, partial(np.mean, axis=0), path=runs[0].path, winner=winner, note=note)


def pick_outcomes(outcomes: Sequence[Outcomes], pick: Ints, note: str = "") -> Outcomes:
    """For each item the outcome of one of several policies, whose number `pick` holds."""
    rows = np.arange(len(pick))
    # outcomes × items
    return combined(outcomes, lambda arrays: np.stack(arrays)[pick, rows], note=note)


def concatenate(parts: Sequence[Outcomes], masks: Sequence[Bools]) -> Outcomes:
    """The outcome of one policy on all items, given its outcome on each of several disjoint parts of them."""
    order = np.argsort(np.concatenate([np.flatnonzero(mask) for mask in masks]))
    return combined(parts, lambda arrays: np.concatenate(arrays)[order])


def best_mixture(fixed: Sequence[Outcomes], cost_usd: float) -> Outcomes:
    """The most accurate random mixture of fixed choices that costs at most this much per item.

    Its accuracy is the upper hull of the fixed choices; below the cheapest of them, the cheapest counts.
    """
    places = [(each.mean_usd, each.mean_score) for each in fixed]
    corners = [fixed[places.index(point)] for point in upper_hull(places)]
    costs = [each.mean_usd for each in corners]
    after = next((i for i, cost in enumerate(costs) if cost > cost_usd), len(corners))
    if after in (0, len(corners)):
        only = corners[min(after, len(corners) - 1)]
        return replace(only, note=only.name)
    below, above = corners[after - 1 : after + 1]
    share = (cost_usd - costs[after - 1]) / (costs[after] - costs[after - 1])
    return combined(
        [below, above],
        lambda pair: (1 - share) * pair[0] + share * pair[1] if share else pair[0],  # 0 · NaN is NaN
        path=(above if share > 0.5 else below).path,
        winner=np.full(len(below), -1),
        name="best-mixture",
        note=f"{1 - share:.0%} {below.name}, {share:.0%} {above.name}",
    )


def upper_hull(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The corners of the upper hull of (cost, accuracy), from the cheapest point to the most accurate.

    >>> upper_hull([(1, 0.5), (2, 0.55), (3, 0.7), (4, 0.6)])
    [(1, 0.5), (3, 0.7)]
    """
    hull: list[tuple[float, float]] = []
    for cost, accuracy in sorted(points, key=lambda point: (point[0], -point[1])):
        if hull and accuracy <= hull[-1][1]:
            continue
        while len(hull) > 1:
            (cost_1, accuracy_1), (cost_2, accuracy_2) = hull[-2:]
            if (accuracy - accuracy_1) * (cost_2 - cost_1) < (accuracy_2 - accuracy_1) * (cost - cost_1):
                break  # the last corner is above the line from the one before it to this point
            hull.pop()
        hull.append((cost, accuracy))
    return hull


def cost_at_accuracy(curve: Sequence[Outcomes], accuracy: float) -> float | None:
    """The least cost at which mixtures of these outcomes reach an accuracy; None if they do not."""
    hull = upper_hull([(each.mean_usd, each.mean_score) for each in curve])
    costs = [cost for cost, _ in hull]
    reached = [value for _, value in hull]
    return None if reached[-1] < accuracy else float(np.interp(accuracy, reached, costs))


def equal_accuracy_cost(curve: Sequence[Outcomes], slow: Outcomes) -> str:
    """A sentence: the cost at which the dials of a curve are as accurate as the slow agent alone."""
    cost_usd = cost_at_accuracy(curve, slow.mean_score)
    if cost_usd is None:
        return "no dial is as accurate as the slow agent alone"
    return f"as accurate as the slow agent alone at {cost_usd / slow.mean_usd:.2f} of its cost"
