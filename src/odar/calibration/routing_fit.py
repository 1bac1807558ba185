"""Fitting of thresholds (SPEC 2.7): the routing options, the goals, and the rule that rejects a fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from odar.calibration.bootstrap import Interval
from odar.calibration.fusion_fit import FusionFit
from odar.calibration.parts import fold_masks
from odar.calibration.setup import PathOutcomes
from odar.difficulty.estimator import LearnedEstimator
from odar.policy.arrays import Array, Bools, Ints, Rows
from odar.policy.path import HARD, SIMPLE, Routing, Thresholds
from odar.policy.posterior import PosteriorDifficulty

GRID_1 = (0.2, 0.3, 0.4)
GRID_2 = (0.6, 0.7, 0.8)
"""Values of τ1 and of τ2 that are tried (SPEC 2.7)."""
SHARES = (0.25, 0.5, 0.75, 0.9, 0.97)
"""Shares of the items below further thresholds that are tried: a model that is mostly wrong has no d under 0.4."""
FINE_SHARES = tuple(round(0.05 * i, 2) for i in range(20))
"""The shares that are tried if a limit has to be met closely."""
MAX_LOSS = 0.005
"""Accuracy loss allowed in a choice; less than in the final test, as the best of many is partly best by chance."""
GOALS = ("balanced", "accuracy", "cost")
MIN_EXPERT_ITEMS = 50
"""Items of an expert that are needed for thresholds of its own (SPEC 4.3)."""
POOLED_ITEMS = 20
"""Weight of the mean of all items in the gain of one expert, in items of that expert."""
MIN_SLOPE = 0.1
"""Minimum rise of the gain of Hard from the easiest question to the hardest."""
REPEATS = 2
"""Number of divisions into folds on which fits are compared."""
TOLERANCE = 0.05
"""Accuracy that a cheaper setting may lose at the low end of its interval."""
_GRID = np.linspace(0.0, 1.0, 201)
"""Difficulties at which `fit_by_gain` chooses a path."""
_BISECTIONS = 40


@dataclass(frozen=True, slots=True)
class Goal:
    """The objective of a fit of thresholds (SPEC 5.14)."""

    kind: str = "balanced"
    """balanced: accuracy per cost; accuracy: highest within the limits; cost: lowest without loss of accuracy."""
    max_calls: float | None = None
    """Maximum mean calls of a question."""
    max_cost: float | None = None
    """Maximum mean US dollars of a question."""

    @property
    def limited(self) -> bool:
        """Whether calls or cost have a limit."""
        return self.max_calls is not None or self.max_cost is not None

    def allows(self, calls: Array, cost: Array) -> bool:
        """Return whether these questions stay within the limits; an unknown cost is over any limit."""
        if self.max_calls is not None and not calls.mean() <= self.max_calls:
            return False
        return self.max_cost is None or bool(cost.mean() <= self.max_cost)

    def objective(self, right: Array, price: Array) -> tuple[float, float]:
        """Return the value to maximise, and the value that breaks ties.

        >>> Goal().objective(np.array([1.0, 0.0]), np.array([2.0, 3.0]))
        (0.2, 0.5)
        """
        accuracy, cost = float(right.mean()), float(price.mean())
        match self.kind:
            case "accuracy":
                return accuracy, -cost
            case "cost":
                return -cost, accuracy
            case _:
                return accuracy / cost if cost > 0 else np.inf, accuracy


BALANCED = Goal()


@dataclass(frozen=True, slots=True)
class RoutingOption(Rows):
    """A source of difficulties and a fusion rule, with the outcomes of every item."""

    estimator: LearnedEstimator | None
    posterior: PosteriorDifficulty | None
    difficulty: Array
    """Cross-validated difficulty, if an estimator or posterior was fitted."""
    fusion: FusionFit
    outcomes: PathOutcomes
    """Outcomes of each path for each item under the fusion rule."""

    def score_and_price(self, paths: Ints) -> tuple[Array, Array]:
        """Return the score and the price of each item on these paths."""
        return self.outcomes.on_paths(paths)[0], self.outcomes.price[np.arange(len(paths)), paths]


def fit_routing(
    variants: Sequence[RoutingOption], thresholds: Thresholds, current_right: Array, goal: Goal = BALANCED
) -> tuple[RoutingOption, Thresholds] | None:
    """Return the variant and thresholds that serve the goal best among those that lose no accuracy.

    Ties go to the first variant and to the thresholds in use. The result is None if every choice loses accuracy
    against `current_right`, which is 1 for items that the current setup answers right. This comparison is left out
    under limits, as the current setup may exceed them, and if the goal is accuracy.
    """
    best, highest = None, (-np.inf, -np.inf)
    may_lose = goal.limited or goal.kind == "accuracy"
    shares = SHARES if goal == BALANCED else FINE_SHARES
    for variant in variants:
        for candidate in candidate_thresholds(variant.difficulty, thresholds, shares):
            paths = candidate.paths(variant.difficulty)
            right, price = variant.score_and_price(paths)
            objective = goal.objective(right, price)
            if objective <= highest or not (may_lose or keeps_accuracy(right - current_right)):
                continue
            if goal.allows(*variant.outcomes.on_paths(paths)[1:]):
                best, highest = (variant, candidate), objective
    return best


def fit_by_gain(
    option: RoutingOption, common: Thresholds, experts: NDArray[np.str_] | None, goal: Goal
) -> tuple[Thresholds, dict[str, Thresholds]]:
    """Return thresholds for accuracy within a limit of calls, also for each expert with enough items (SPEC 4.3).

    On a few hundred items the best of many thresholds is mostly the best by chance. So the gain of Medium and Hard
    over Simple is modelled first: by expert, shrunk towards the mean of all items, and rising with the difficulty.
    Each question then takes the path with the highest gain minus price. The price per call is the same for all
    questions: the lowest that meets the limit.
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
        if goal.allows(*option.outcomes.on_paths(paths)[1:]):
            high, chosen = price, found
        else:
            low = price
    rest = chosen.pop("", common)
    return rest, {name: replace(each, expert=name) for name, each in chosen.items()}


RoutingFit = tuple[RoutingOption, Thresholds, dict[str, Thresholds]]
"""A routing option, its thresholds, and the thresholds of single experts."""


def choose_within_limit(
    options: Sequence[RoutingOption], common: Thresholds, experts: NDArray[np.str_] | None, goal: Goal
) -> RoutingFit:
    """Return the most accurate routing within a limit of calls, chosen on folds that it was not fitted to.

    The choices are a fit by gain of each option, with common thresholds and with those of experts, and the best
    thresholds of a grid. The first choice that is at most two standard errors below the best one is taken; options
    are given in the order of preference.
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
    """Return the mean score of each item under fits to other items."""
    right = np.zeros(size)
    for repeat in range(REPEATS):
        for unseen in fold_masks(size, repeat):
            option, thresholds, by_expert = fit(~unseen)
            held_out = option.rows(unseen)
            routing = Routing(thresholds, by_expert=by_expert)
            others = None if experts is None else experts[unseen]
            path = routing.route(held_out.difficulty, held_out.difficulty, others).path
            right[unseen] += held_out.score_and_price(path)[0] / REPEATS
    return right


def standard_error(values: Array) -> float:
    """Return the standard error of the mean."""
    return float(values.std() / np.sqrt(len(values)))


def _groups(option: RoutingOption, experts: NDArray[np.str_] | None) -> dict[str, Bools]:
    """Return the items of each expert that has enough of them; all others under the empty name."""
    names, counts = np.unique(experts if experts is not None else [], return_counts=True)
    groups = {str(n): np.array(experts) == n for n, c in zip(names, counts, strict=True) if c >= MIN_EXPERT_ITEMS}
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
    """Return the thresholds that give each difficulty of the grid its path."""
    edges = [*_GRID, 1.0]
    tau2 = edges[int(np.flatnonzero(path < HARD)[-1]) + 1] if (path < HARD).any() else 0.0
    tau1 = edges[int(np.flatnonzero(path == SIMPLE)[-1]) + 1] if (path == SIMPLE).any() else 0.0
    return Thresholds(round(float(min(tau1, tau2)), 3), round(float(tau2), 3))


def keeps_accuracy(difference: Array) -> bool:
    """Return whether a difference in accuracy is at least 0, and one standard error lower still at least −MAX_LOSS.

    Among many cheap thresholds some reach the current accuracy only by chance.
    """
    return bool(difference.mean() >= 0 and difference.mean() - standard_error(difference) >= -MAX_LOSS)


def candidate_thresholds(difficulty: Array, current: Thresholds, shares: Sequence[float]) -> Iterator[Thresholds]:
    """Yield the thresholds to try: those in use, the paper's grid, and quantiles of the difficulty."""
    quantiles = [*(round(float(each), 3) for each in np.quantile(difficulty, shares)), 1.0]
    yield current
    for tau1 in (*GRID_1, *quantiles):
        for tau2 in (*GRID_2, *quantiles):
            if tau1 <= tau2:
                yield Thresholds(tau1, tau2)


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
