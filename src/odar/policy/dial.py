"""The dial (SPEC 9.5): what a right answer is worth, as one number.

A dial is the least gain, in points of accuracy, for which a slow call of ordinary length is bought. The same number
can be given in dollars, or as a target for the mean calls or dollars of a question: then a controller moves it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from odar.errors import InputError, plural

NAMES: Mapping[str, float] = {"economy": 25.0, "balanced": 10.0, "quality": 3.0}
"""The named dials, in points."""
_LEAST_POINTS = 0.001
_DOLLARS = (1e-9, 1e9)
"""Least and largest value of a right answer and target of a question: beyond them, numbers overflow."""
_LIMITS = {"value_usd": _DOLLARS, "target_calls": (1, 1000), "target_cost_usd": _DOLLARS}
_GAIN = 0.25
"""Change of log V for a surplus of one question's target."""
_MAX_DEBT = 40.0
"""Limit of the surplus or deficit, in questions, for a target that cannot be met."""


@dataclass(frozen=True, slots=True)
class Dial:
    """The price of accuracy.

    >>> Dial.parse("economy").value(reference_usd=0.01), Dial.parse("4").points
    (0.04, 4.0)
    """

    name: str = "balanced"
    points: float = NAMES["balanced"]
    """Least gain in points of accuracy for which a reference slow call is bought."""
    value_usd: float | None = None
    """What a right answer is worth in dollars; None: by `points`."""
    target: str = ""
    """calls or cost_usd if a controller moves the dial; empty otherwise."""
    target_value: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a name, or points as a number."""
        if text in NAMES:
            return cls(text, NAMES[text])
        try:
            points = float(text)
        except ValueError:
            points = math.nan
        if not _LEAST_POINTS <= points <= 100:
            names = ", ".join(NAMES)
            shown = text if len(text) <= 40 else f"{text[:40]}…"
            raise InputError(f"dial {shown!r} is neither one of {names} nor points from {_LEAST_POINTS} to 100")
        return cls(plural(points, "point"), points)

    @classmethod
    def from_options(
        cls,
        dial: str | float | None = None,
        *,
        value_usd: float | None = None,
        target_calls: float | None = None,
        target_cost_usd: float | None = None,
    ) -> Self | None:
        """The dial in one of its forms; None if no option is given.

        Args:
            dial: a name, or points.
            value_usd: what a right answer is worth.
            target_calls: mean calls of a question, which a controller meets.
            target_cost_usd: mean dollars of a question, which a controller meets.

        >>> str(Dial.from_options(target_calls=1.8))
        'target 1.8 calls'
        """
        numbers = {"value_usd": value_usd, "target_calls": target_calls, "target_cost_usd": target_cost_usd}
        given = {name: number for name, number in numbers.items() if number is not None}
        names = [*(["dial"] if dial is not None else []), *given]
        if len(names) > 1:
            raise InputError(f"{' and '.join(names)} are both given; keep one of them")
        if dial is not None:
            return cls.parse(str(dial))
        if not given:
            return None
        ((name, number),) = given.items()
        least, most = _LIMITS[name]
        if not least <= number <= most:
            raise InputError(f"{name} = {number:g} must be between {least:g} and {most:g}")
        shown = f"{number:g} calls" if name == "target_calls" else f"${number:g}"
        if name == "value_usd":
            return cls(shown, value_usd=number)
        return cls(f"target {shown}", target=name.removeprefix("target_"), target_value=number)

    def value(self, reference_usd: float) -> float:
        """V, given the price of a slow call of ordinary length."""
        return self.value_usd if self.value_usd is not None else 100 * reference_usd / self.points

    def __str__(self) -> str:
        return self.name


@dataclass(slots=True)
class TargetState:
    """The questions of one target, and what they spent above it.

    The factor of V falls with the surplus, so that the mean of all questions comes to the target.

    >>> state = TargetState()
    >>> for calls in (1, 6, 6): state.count(calls, target=2.0)
    >>> state.mean, state.factor(2.0) < 1
    (4.333333333333333, True)
    """

    questions: int = 0
    total: float = 0.0
    debt: float = 0.0
    """Spending above the target that is not compensated yet."""

    def count(self, spent: float, target: float) -> None:
        self.questions += 1
        self.total += spent
        limit = _MAX_DEBT * target
        self.debt = min(limit, max(-limit, self.debt + spent - target))

    def factor(self, target: float) -> float:
        """Factor of V for the next question."""
        return math.exp(-_GAIN * self.debt / target)

    @property
    def mean(self) -> float | None:
        """Mean spending of a question; None before the first."""
        return self.total / self.questions if self.questions else None

    def __add__(self, other: TargetState) -> TargetState:
        return TargetState(self.questions + other.questions, self.total + other.total, self.debt + other.debt)
