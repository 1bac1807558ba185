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
_TARGETS = ("calls", "cost_usd")
_LEAST_POINTS = 0.001
_DOLLARS = (1e-9, 1e9)
"""Least and largest value of a right answer and target of a question: beyond them, numbers overflow."""
_MAX_CALLS = 1000
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
    def dollars(cls, value_usd: float) -> Self:
        """The dial at which a right answer is worth this much."""
        if not _DOLLARS[0] <= value_usd <= _DOLLARS[1]:
            raise InputError(f"value_usd = {value_usd} must be between {_DOLLARS[0]:g} and {_DOLLARS[1]:g}")
        return cls(f"${value_usd:g}", value_usd=value_usd)

    @classmethod
    def meeting(cls, target: str, value: float) -> Self:
        """The dial that meets a mean: `calls` or `cost_usd` of a question.

        >>> str(Dial.meeting("calls", 1.8))
        'target 1.8 calls'
        """
        if target not in _TARGETS:
            raise InputError(f"a target of {target!r}; it can be: {', '.join(_TARGETS)}")
        least, most = (1, _MAX_CALLS) if target == "calls" else _DOLLARS
        if not least <= value <= most:
            raise InputError(f"a target of {value:g} {target} must be between {least:g} and {most:g}")
        shown = f"{value:g} calls" if target == "calls" else f"${value:g}"
        return cls(f"target {shown}", target=target, target_value=value)

    @classmethod
    def from_options(
        cls,
        dial: str | float | None = None,
        *,
        value_usd: float | None = None,
        target_calls: float | None = None,
        target_cost_usd: float | None = None,
    ) -> Self | None:
        """The dial that these options set, in any of its forms; None if they set no dial."""
        given = {
            "dial": dial, "value_usd": value_usd, "target_calls": target_calls, "target_cost_usd": target_cost_usd
        }  # fmt: skip
        named = [name for name, value in given.items() if value is not None]
        if len(named) > 1:
            raise InputError(f"{' and '.join(named)} are both given; keep one of them")
        if dial is not None:
            return cls.parse(str(dial))
        if value_usd is not None:
            return cls.dollars(value_usd)
        if target_calls is not None:
            return cls.meeting("calls", target_calls)
        return None if target_cost_usd is None else cls.meeting("cost_usd", target_cost_usd)

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
        questions = self.questions + other.questions
        return TargetState(questions, self.total + other.total, self.debt + other.debt)
