"""Targets instead of thresholds (SPEC 5.13): one parameter t moves τ1 and τ2 to meet mean calls or dollars.

t = 0 is always Simple, t = 1 always Hard; between them the thresholds follow a fixed path through those of the
settings or of a calibration. t is chosen by the distribution of recent difficulties, which needs no labels, and by
the actual spending: a surplus or deficit is compensated over the next questions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from odar.errors import InputError
from odar.policy.arrays import Array
from odar.policy.path import PATHS
from odar.types import Path, TargetUse

KINDS = ("calls", "cost_usd")
BINS = 200
"""Number of bins in the histogram of difficulties."""
MEMORY = 100.0
"""Number of questions after which the weight of a difficulty has fallen to 1/e."""
HORIZON = 12.0
"""Number of questions over which a surplus or deficit is compensated."""
MAX_DEBT = 20.0
"""Limit of the debt, in questions, for a target that cannot be met."""
SECOND_OPINION_CALLS = 3.0
"""Minimum target for a second fast sample: two fast calls and one slow call."""
_STEPS = 201
"""Grid points of t."""
_DECAY = math.exp(-1 / MEMORY)
"""Factor by which older observations are multiplied at each question."""
_PRIOR_WEIGHT = 20.0
"""Weight of the assumed distribution before the first question, in questions: the paper's path mix."""


@dataclass(frozen=True, slots=True)
class Target:
    """A mean to meet.

    >>> Target.from_options(calls=1.8)
    Target(kind='calls', value=1.8)
    """

    kind: str
    """calls or cost_usd."""
    value: float

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"a target of {self.kind!r}; it can be: {', '.join(KINDS)}")
        if not (math.isfinite(self.value) and self.value > 0):
            raise InputError(f"a target of {self.value} {self.kind}; it must be above 0")
        if self.kind == "calls" and self.value < 1:
            raise InputError(f"a target of {self.value:g} calls; every question takes at least 1")

    @classmethod
    def from_options(cls, *, calls: float | None = None, cost_usd: float | None = None) -> Target | None:
        """Return the target with the given value; None if there is none."""
        if calls is not None and cost_usd is not None:
            raise InputError("a target is either calls or cost_usd, not both")
        if calls is not None:
            return cls("calls", calls)
        return None if cost_usd is None else cls("cost_usd", cost_usd)

    @property
    def allows_second_opinion(self) -> bool:
        """Whether a second fast sample for every question fits the target."""
        return self.kind != "calls" or self.value >= SECOND_OPINION_CALLS

    def __str__(self) -> str:
        return f"{self.value:g} calls" if self.kind == "calls" else f"${self.value:g}"


@dataclass(frozen=True, slots=True)
class ThresholdPath:
    """τ1 and τ2 as functions of t, from always Simple to always Hard.

    >>> path = ThresholdPath.through((0.3, 0.7))
    >>> path.thresholds(0.0), path.thresholds(0.5), path.thresholds(1.0)
    ((1.0, 1.0), (0.3, 0.7), (0.0, 0.0))
    """

    knots: tuple[tuple[float, float], ...]
    """(τ1, τ2) at even steps of t; both fall, τ1 is never above τ2."""

    @classmethod
    def through(cls, *points: tuple[float, float]) -> ThresholdPath:
        """Return the path from always Simple through these thresholds, highest first, to always Hard."""
        knots = ((1.0, 1.0), *points, (0.0, 0.0))
        for (a1, a2), (b1, b2) in pairwise(knots):
            if not (b1 <= a1 and b2 <= a2 and b1 <= b2):
                raise InputError(
                    f"thresholds ({b1:g}, {b2:g}) after ({a1:g}, {a2:g}): a path of thresholds must fall"
                )
        return cls(knots)

    @classmethod
    def medium_first(cls, tau1: float, tau2: float) -> ThresholdPath:
        """Return the path on which questions leave Simple for Medium before any of them takes Hard.

        A verification is one call and brings most of what the Hard path gains, so it is paid for first.

        >>> path = ThresholdPath.medium_first(0.3, 0.7)
        >>> path.thresholds(0.0), path.thresholds(1 / 3), path.thresholds(2 / 3), path.thresholds(1.0)
        ((1.0, 1.0), (0.3, 1.0), (0.3, 0.7), (0.0, 0.0))
        """
        return cls.through((tau1, 1.0), (tau1, tau2))

    def thresholds(self, t: float) -> tuple[float, float]:
        """Return (τ1, τ2) at t."""
        steps = np.linspace(0, 1, len(self.knots))
        tau1, tau2 = (float(np.interp(t, steps, [knot[i] for knot in self.knots])) for i in (0, 1))
        return tau1, tau2

    def positions(self, difficulty: ArrayLike) -> tuple[Array, Array]:
        """Return the least t at which each difficulty is no longer Simple, and at which it is Hard."""
        d = np.asarray(difficulty, dtype=np.float64)
        steps = np.linspace(0, 1, len(self.knots))[::-1]
        medium, hard = (np.interp(d, [knot[i] for knot in self.knots[::-1]], steps) for i in (0, 1))
        return medium, hard


@dataclass(slots=True)
class TargetState:
    """Observations of a target: recent difficulties, the cost of each path, and the surplus to compensate."""

    histogram: Array = field(default_factory=lambda: np.zeros(BINS))
    """Weight of recent difficulties by bin."""
    spent: Array = field(default_factory=lambda: np.zeros(3))
    """Weighted spending on Simple, Medium and Hard."""
    taken: Array = field(default_factory=lambda: np.zeros(3))
    """Weighted number of questions on Simple, Medium and Hard."""
    debt: float = 0.0
    """Spending above the target so far, less what has been compensated."""
    questions: int = 0
    """Number of questions under this target."""
    total: float = 0.0
    """Total cost of these questions."""

    def count(self, difficulty: float, path: Path, spent: float) -> None:
        """Count one question with its path and its cost."""
        self.observe(difficulty)
        self.count_spending(path, spent)

    def observe(self, difficulty: float) -> None:
        """Count a difficulty."""
        self.histogram *= _DECAY
        self.histogram[min(BINS - 1, max(0, int(difficulty * BINS)))] += 1.0

    def count_spending(self, path: Path, spent: float) -> None:
        """Count the cost of a question on a path."""
        self.spent *= _DECAY
        self.taken *= _DECAY
        self.spent[PATHS.index(path)] += spent
        self.taken[PATHS.index(path)] += 1.0
        self.questions += 1
        self.total += spent

    def followed_by(self, other: TargetState) -> TargetState:
        """Return this state followed by the later observations of another process."""
        decay = math.exp(-other.questions / MEMORY)
        return TargetState(
            self.histogram * decay + other.histogram,
            self.spent * decay + other.spent,
            self.taken * decay + other.taken,
            self.debt + other.debt,
            self.questions + other.questions,
            self.total + other.total,
        )

    @property
    def mean(self) -> float | None:
        """Mean cost of a question under this target; None before the first."""
        return self.total / self.questions if self.questions else None

    def to_dict(self) -> dict[str, Any]:
        """Return the state as JSON, without empty bins."""
        bins = {str(i): round(float(w), 5) for i, w in enumerate(self.histogram) if w > 1e-4}
        rest = {"debt": self.debt, "questions": self.questions, "total": self.total}
        return {"bins": bins, "spent": self.spent.tolist(), "taken": self.taken.tolist(), **rest}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> TargetState:
        """Read what `to_dict` wrote; raises KeyError, TypeError or ValueError if it is invalid."""
        histogram = np.zeros(BINS)
        for number, weight in raw["bins"].items():
            histogram[int(number) % BINS] = float(weight)
        spent, taken = (np.array(raw[name], dtype=np.float64).reshape(3) for name in ("spent", "taken"))
        return cls(histogram, spent, taken, float(raw["debt"]), int(raw["questions"]), float(raw["total"]))


class TargetController:
    """Chooses thresholds question by question. Not thread-safe: its owner must lock.

    Args:
        target: the mean to meet.
        path: the thresholds as a function of t.
        calls: assumed calls on Simple, Medium and Hard before any question; for dollars only their ratio matters.
    """

    def __init__(self, target: Target, path: ThresholdPath, calls: Sequence[float] = (1.0, 2.0, 6.0)) -> None:
        self.target = target
        self.path = path
        self.state = TargetState()
        self._calls = np.asarray(calls, dtype=np.float64)
        self._curve: Array | None = None
        self._age = 0

    def choose(self) -> TargetUse:
        """Return the thresholds for the next question, with the target and t for a trace."""
        curve = self._expected_spending()
        wanted = self.target.value - self.state.debt / HORIZON
        t = float(np.interp(wanted, curve, np.linspace(0, 1, _STEPS)))
        return TargetUse(self.target.kind, self.target.value, t, *self.path.thresholds(t), self.state.mean)

    def book(self, difficulty: float, path: Path) -> float:
        """Count a question on this path, and return its assumed spending for `settle`."""
        self.state.observe(difficulty)
        assumed = float(self._spending()[PATHS.index(path)])
        self._add_debt(assumed - self.target.value)
        self._age += 1
        if self._age >= 10:
            self._curve = None
        return assumed

    def settle(self, path: Path, assumed: float, actual: float) -> None:
        """Replace the assumed spending of a question by its actual cost."""
        self.state.count_spending(path, actual)
        self._add_debt(actual - assumed)

    def cancel(self, assumed: float) -> None:
        """Undo `book` for a question that failed and has no known cost."""
        self._add_debt(self.target.value - assumed)

    def restore(self, state: TargetState, debt: float) -> None:
        """Continue from the observations of all processes, with this process's own debt."""
        self.state = state
        self.state.debt = debt
        self._curve = None

    def _add_debt(self, amount: float) -> None:
        most = MAX_DEBT * float(np.ptp(self._spending()))
        self.state.debt = float(np.clip(self.state.debt + amount, -most, most))

    def _spending(self) -> Array:
        """Return the mean cost of each path: as observed, or in proportion to its calls if none was observed."""
        state = self.state
        scale = 1.0
        if self.target.kind != "calls":
            seen = float(state.taken @ self._calls)
            scale = float(state.spent.sum()) / seen if seen > 0 else self.target.value / float(self._calls[0])
        # The assumption counts as one question, so that the first observation does not decide alone.
        return np.maximum.accumulate((state.spent + scale * self._calls) / (state.taken + 1.0))

    def _expected_spending(self) -> Array:
        """Return the mean spending at each step of t, given the recent difficulties."""
        if self._curve is None:
            centres = (np.arange(BINS) + 0.5) / BINS
            prior = _PRIOR_WEIGHT * _prior_density(centres) * math.exp(-self.state.questions / MEMORY)
            weights = self.state.histogram + prior
            weights = weights / weights.sum()
            spending = self._spending()
            steps = np.linspace(0, 1, _STEPS)
            curve = np.full(_STEPS, float(spending[0]))
            for position, extra in zip(self.path.positions(centres), np.diff(spending), strict=True):
                order = np.argsort(position)
                cumulative = np.r_[0.0, np.cumsum(weights[order])]
                curve += extra * cumulative[np.searchsorted(position[order], steps, side="right")]
            curve[0], curve[-1] = spending[0], spending[-1]
            self._curve = np.maximum.accumulate(curve) + np.arange(_STEPS) * 1e-12  # strictly rising, for interp
            self._age = 0
        return self._curve


def _prior_density(centres: Array) -> Array:
    """Return the density before the first question: the paper's mix, uniform within each path."""
    density = np.select([centres < 0.3, centres < 0.7], [0.41 / 0.3, 0.35 / 0.4], 0.24 / 0.3)
    return np.asarray(density / density.sum())
