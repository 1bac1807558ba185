"""Thresholds, which fitted parts decide (SPEC 2.7), and which fits are rejected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from odar.calibration.bootstrap import Interval
from odar.calibration.fusion_fit import FusionFit
from odar.calibration.parts import folds
from odar.calibration.setup import PathOutcomes
from odar.difficulty.estimator import LearnedEstimator
from odar.policy.arrays import Array, Bools, Ints, Rows
from odar.policy.path import HARD, SIMPLE, Routing, Thresholds
from odar.policy.posterior import PosteriorDifficulty

GRID_1 = (0.2, 0.3, 0.4)
GRID_2 = (0.6, 0.7, 0.8)
"""The thresholds that are tried (SPEC 2.7)."""
SHARES = (0.25, 0.5, 0.75, 0.9, 0.97)
"""And those that leave such shares of the items below them: a model that is mostly wrong has no d under 0.4."""
RISK = 0.005
"""Accuracy loss allowed in choosing; less than in the final test, as the best of many is partly best by chance."""
GOALS = ("balanced", "accuracy", "cost")
FINE_SHARES = tuple(round(0.05 * i, 2) for i in range(20))
"""Shares of items below the thresholds that are tried where a limit has to be met closely."""
EXPERT_ITEMS = 50
"""Items of an expert before it gets thresholds of its own (SPEC 4.3)."""
POOLED_ITEMS = 20
"""Weight of all items in the gain of one expert, in items of its own."""
MIN_SLOPE = 0.1
"""The least by which the gain of Hard rises from the easiest question to the hardest."""
REPEATS = 2
"""Divisions into folds that choose between fits by gain."""
TOLERANCE = 0.05
"""The accuracy that a cheaper setting may lose at the low end of its interval."""
_GRID = np.linspace(0.0, 1.0, 201)
_BISECTIONS = 40


@dataclass(frozen=True, slots=True)
class Goal:
    """What the thresholds are chosen for (SPEC 5.14)."""

    kind: str = "balanced"
    """balanced: accuracy per cost; accuracy: the most within the limits; cost: the least that loses no accuracy."""
    max_calls: float | None = None
    """Mean calls of a question, at most."""
    max_cost: float | None = None
    """Mean US dollars of a question, at most."""

    @property
    def limited(self) -> bool:
        """Whether calls or cost have a limit."""
        return self.max_calls is not None or self.max_cost is not None

    def allows(self, calls: Array, cost: Array) -> bool:
        """Return whether these questions stay within the limits; an unknown cost is over any limit."""
        if self.max_calls is not None and not calls.mean() <= self.max_calls:
            return False
        return self.max_cost is None or bool(cost.mean() <= self.max_cost)

    def merit(self, right: Array, price: Array) -> tuple[float, float]:
        """Return what is maximised, and what breaks ties."""
        if self.kind == "accuracy":
            return float(right.mean()), -float(price.mean())
        if self.kind == "cost":
            return -float(price.mean()), float(right.mean())
        return score(right, price)


BALANCED = Goal()


@dataclass(frozen=True, slots=True)
class RoutingOption(Rows):
    """One way to a difficulty and to a choice among candidates, and what they make of every item."""

    estimator: LearnedEstimator | None
    posterior: PosteriorDifficulty | None
    difficulty: Array
    """Cross-validated difficulty, if an estimator or posterior was fitted."""
    fusion: FusionFit
    outcomes: PathOutcomes
    """What each path gives for each item under that fusion rule."""

    def under(self, paths: Ints) -> tuple[Array, Array]:
        """Right or wrong of each item on these paths, and its price."""
        return self.outcomes.under(paths)[0], self.outcomes.price[np.arange(len(paths)), paths]


def fit_routing(
    variants: Sequence[RoutingOption], thresholds: Thresholds, current_right: Array, goal: Goal = BALANCED
) -> tuple[RoutingOption, Thresholds] | None:
    """Return the variant and thresholds that serve the goal best among those that lose no accuracy.

    Of equals the first variant is taken, and the thresholds in use. None if every choice loses. Under limits, or
    for accuracy, nothing is compared with `current_right`, which is 1 where the current setup is right: it may cost
    more than the limits allow.
    """
    best, most = None, (-np.inf, -np.inf)
    shares = SHARES if goal == BALANCED else FINE_SHARES
    for variant in variants:
        for point in points(variant.difficulty, thresholds, shares):
            paths = point.paths(variant.difficulty)
            right, price = variant.under(paths)
            merit = goal.merit(right, price)
            if merit <= most or not (
                goal.limited or goal.kind == "accuracy" or keeps_accuracy(right - current_right)
            ):
                continue
            if goal.allows(*variant.outcomes.under(paths)[1:]):
                best, most = (variant, point), merit
    return best


def fit_by_gain(
    option: RoutingOption, common: Thresholds, experts: NDArray[np.str_] | None, goal: Goal
) -> tuple[Thresholds, dict[str, Thresholds]]:
    """Return thresholds for accuracy within a limit of calls, by expert where it has enough items (SPEC 4.3).

    On a few hundred items the best of many thresholds is mostly the luckiest one. So the gain of Medium and Hard
    over Simple is modelled first: by expert, drawn towards the mean of all, and rising with the difficulty. Every
    question then takes the path whose gain is worth most at one price per call, the lowest that meets the limit.
    """
    assert goal.max_calls is not None
    groups = _groups(option, experts)
    gain, slope = _gains(option, groups)
    mean_calls = {name: option.outcomes.calls[own].mean(axis=0) for name, own in groups.items()}
    low, high = 0.0, 1.0
    chosen = dict.fromkeys(groups, Thresholds(1.0, 1.0))
    for _ in range(_BISECTIONS):
        price, found = (low + high) / 2, {}
        paths = np.zeros(len(option.difficulty), dtype=np.int64)
        for name, own in groups.items():
            values = gain[name] + np.outer(_GRID - option.difficulty[own].mean(), slope)
            values -= price * (mean_calls[name][1:] - mean_calls[name][0])
            found[name] = _as_thresholds(np.column_stack([np.zeros(len(_GRID)), values]).argmax(axis=1))
            paths[own] = found[name].paths(option.difficulty[own])
        if goal.allows(*option.outcomes.under(paths)[1:]):
            high, chosen = price, found
        else:
            low = price
    rest = chosen.pop("", common)
    return rest, {name: replace(each, expert=name) for name, each in chosen.items()}


RoutingFit = tuple[RoutingOption, Thresholds, dict[str, Thresholds]]
"""What decides, its thresholds, and the thresholds of single experts."""


def choose_within_limit(
    options: Sequence[RoutingOption], common: Thresholds, experts: NDArray[np.str_] | None, goal: Goal
) -> RoutingFit:
    """Return the most accurate routing within a limit of calls, chosen on folds that it was not fitted to.

    The choices are a fit by gain of each option, with the same thresholds for all experts and with their own, and
    the best thresholds of a grid. On the items of the fit the larger choice always looks better, so each is judged
    on held-out folds. The first that is not clearly worse than the best, by two standard errors, is taken. Of the
    options, which are ways to a difficulty, the preferred one is the first.
    """

    def by_gain(option: RoutingOption, names: NDArray[np.str_] | None, rows: Bools) -> RoutingFit:
        own = None if names is None else names[rows]
        return (option, *fit_by_gain(option.rows(rows), common, own, goal))

    def by_grid(rows: Bools) -> RoutingFit:
        some = [option.rows(rows) for option in options]
        found = fit_routing(some, common, np.zeros(int(rows.sum())), goal)
        if found is None:
            return options[0], common, {}
        return next(o for o, part in zip(options, some, strict=True) if part is found[0]), found[1], {}

    names = (None,) if experts is None else (None, experts)
    fits = [partial(by_gain, option, each) for each in names for option in options] + [by_grid]
    size = len(options[0].difficulty)
    right = [_held_out_right(fit, size, experts) for fit in fits]
    behind = [max(right, key=np.mean) - each for each in right]
    good = (fit for fit, lead in zip(fits, behind, strict=True) if lead.mean() <= 2 * standard_error(lead))
    return next(good)(np.ones(size, dtype=bool))


def _held_out_right(fit: Callable[[Bools], RoutingFit], size: int, experts: NDArray[np.str_] | None) -> Array:
    """Return how often each item is right under a fit to other items."""
    right = np.zeros(size)
    for repeat in range(REPEATS):
        fold = folds(size, repeat)
        for number in range(int(fold.max()) + 1):
            unseen = fold == number
            option, thresholds, by_expert = fit(~unseen)
            held_out = option.rows(unseen)
            routing = Routing(thresholds, by_expert=by_expert)
            others = None if experts is None else experts[unseen]
            path = routing.route(held_out.difficulty, held_out.difficulty, others).path
            right[unseen] += held_out.under(path)[0] / REPEATS
    return right


def standard_error(values: Array) -> float:
    """Standard error of the mean."""
    return float(values.std() / np.sqrt(len(values)))


def _groups(option: RoutingOption, experts: NDArray[np.str_] | None) -> dict[str, Bools]:
    """Return the items of each expert that has enough of them; all others under the empty name."""
    names, counts = np.unique(experts if experts is not None else [], return_counts=True)
    groups = {str(n): np.array(experts) == n for n, c in zip(names, counts, strict=True) if c >= EXPERT_ITEMS}
    rest = np.ones(len(option.difficulty), dtype=bool)
    for own in groups.values():
        rest &= ~own
    return {**groups, "": rest} if rest.any() else groups


def _gains(option: RoutingOption, groups: dict[str, Bools]) -> tuple[dict[str, Array], Array]:
    """Return by group the gains of Medium and Hard over Simple at its mean difficulty, and their slopes."""
    right = option.outcomes.correct.astype(np.float64)
    gained = right[:, 1:] - right[:, :1]
    pooled, centred, rest = gained.mean(axis=0), np.zeros(len(right)), np.zeros_like(gained)
    gains = {}
    for name, own in groups.items():
        count = int(own.sum())
        gains[name] = (count * gained[own].mean(axis=0) + POOLED_ITEMS * pooled) / (count + POOLED_ITEMS)
        centred[own] = option.difficulty[own] - option.difficulty[own].mean()
        rest[own] = gained[own] - gained[own].mean(axis=0)
    medium, hard = centred @ rest / max(float(centred @ centred), 1e-12)
    medium = max(medium, MIN_SLOPE / 2)
    return gains, np.array([medium, max(hard, medium + MIN_SLOPE / 2)])


def _as_thresholds(path: Ints) -> Thresholds:
    """Return the thresholds of a path that was chosen for each difficulty of the grid."""
    edges = [*_GRID, 1.0]
    tau2 = edges[int(np.flatnonzero(path < HARD)[-1]) + 1] if (path < HARD).any() else 0.0
    tau1 = edges[int(np.flatnonzero(path == SIMPLE)[-1]) + 1] if (path == SIMPLE).any() else 0.0
    return Thresholds(round(float(min(tau1, tau2)), 3), round(float(tau2), 3))


def keeps_accuracy(difference: Array) -> bool:
    """Return whether accuracy is not lost: not on these items, nor by half a point if they were unlucky by one σ.

    Among many cheap points some reach the current accuracy by luck alone; on other items they would not.
    """
    return bool(difference.mean() >= 0 and difference.mean() - standard_error(difference) >= -RISK)


def points(difficulty: Array, current: Thresholds, below: Sequence[float] = SHARES) -> Iterator[Thresholds]:
    """Yield what is tried: the thresholds in use, the paper's grid, and shares of the items."""
    shares = [*(round(float(each), 3) for each in np.quantile(difficulty, below)), 1.0]
    yield current
    for tau1 in (*GRID_1, *shares):
        for tau2 in (*GRID_2, *shares):
            if tau1 <= tau2:
                yield Thresholds(tau1, tau2)


def score(right: Array, price: Array) -> tuple[float, float]:
    """Accuracy per price (SPEC 2.7), and accuracy, which tells apart what costs nothing."""
    accuracy, cost = float(right.mean()), float(price.mean())
    return accuracy / cost if cost > 0 else np.inf, accuracy


def rejection_reason(accuracy_gain: Interval, cost_change: Interval, tolerance: float = TOLERANCE) -> str | None:
    """Return why fitted settings are rejected, or None if they can be installed.

    Never install a significant accuracy loss; accept a small one only for a real saving. On a few hundred items two
    equally good settings differ by one or two answers, so an insignificant loss is tolerated up to `tolerance`,
    provided that the setting is significantly cheaper. Both intervals are of fitted minus current settings.

    >>> fewer_calls = Interval(-0.9, -1.2, -0.6)
    >>> rejection_reason(Interval(-0.01, -0.03, 0.01), fewer_calls) is None
    True
    >>> rejection_reason(Interval(-0.03, -0.05, -0.01), fewer_calls)
    'accuracy is significantly below the current settings'
    """
    if accuracy_gain.high < 0:
        return "accuracy is significantly below the current settings"
    if accuracy_gain.value < 0:
        if cost_change.high >= 0:
            return "accuracy is below the current settings, and the cost is not significantly lower"
        if accuracy_gain.low < -tolerance:
            return f"accuracy may be {-accuracy_gain.low:.3f} below the current settings, more than {tolerance:g}"
    if cost_change.low > 0 and accuracy_gain.low <= 0:
        return "the cost is higher, and accuracy is not significantly above the current settings"
    return None
