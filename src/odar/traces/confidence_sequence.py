"""Confidence sequences: intervals for a mean that hold at every time at once, however often one looks (SPEC 10.4).

Against the claim "the mean is m", a bettor stakes a fixed share of a fair bet on each new value. If the claim is
true, its capital ever exceeds 1/α with probability α at most (Ville's inequality), so the interval is made of all m
that have not made the bettor rich. The capital is the mean over several fixed stakes, so it depends only on
how often each value occurred: counts of several processes can be added up, in any order.

Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting" (2024).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from odar.policy.arrays import Array

_STAKES = np.geomspace(0.005, 0.95, 24)
"""Shares of the capital that are staked; large ones notice large deviations early."""
_STEPS = 40


class Interval(NamedTuple):
    """A share or a difference of shares, with its bounds."""

    mean: float | None
    """None without a value."""
    low: float
    high: float


def betting_interval(
    counts: Mapping[float, int], least: float = 0.0, most: float = 1.0, alpha: float = 0.05
) -> Interval:
    """The mean of values and an interval that holds at all times together with probability 1 − α.

    Args:
        counts: how often each value occurred.
        least: the least possible value.
        most: the greatest possible value.
        alpha: probability that the interval ever misses the mean, half of it at each end.

    >>> found = betting_interval({1.0: 80, 0.0: 920})
    >>> round(found.mean, 3), round(found.low, 3), round(found.high, 3)
    (0.08, 0.055, 0.112)
    """
    total = sum(counts.values())
    mean = math.fsum(value * count for value, count in counts.items()) / total if total else None
    negated = {-value: count for value, count in counts.items()}
    low = lower_bound(counts, least, most, alpha / 2)
    return Interval(mean, low, -lower_bound(negated, -most, -least, alpha / 2))


def lower_bound(counts: Mapping[float, int], least: float = 0.0, most: float = 1.0, alpha: float = 0.05) -> float:
    """A lower bound of the mean that holds at all times together with probability 1 − α."""
    low = least
    high = most
    if not any(counts.values()):
        return low
    for _ in range(_STEPS):  # the capital falls as m grows
        middle = (low + high) / 2
        if _log_capital(counts, least, middle) > -math.log(alpha):
            low = middle
        else:
            high = middle
    return low


def _log_capital(counts: Mapping[float, int], least: float, mean: float) -> float:
    """The logarithm of the bettor's capital against "the mean is at most `mean`", from a capital of 1."""
    values = np.array(list(counts))[:, None]  # (values, 1)
    numbers = np.array(list(counts.values()), dtype=np.float64)
    logs: Array = numbers @ np.log1p(_STAKES * (values - mean) / max(mean - least, 1e-12))  # (stakes,)
    largest = float(logs.max())
    return largest + math.log(float(np.exp(logs - largest).mean()))


class Differences(NamedTuple):
    """How often answers of the cascade and second answers of slow differed from slow's first answer.

    Each question has one of three outcomes; the difference of the first two, divided by all, is the excess: how
    much more often the cascade differs from slow than slow differs from itself.
    """

    only_cascade: int = 0
    """Questions on which the cascade differed and slow's second answer did not."""
    only_slow: int = 0
    """Questions on which slow's second answer differed and the cascade did not."""
    neither_or_both: int = 0

    @property
    def questions(self) -> int:
        """All questions."""
        return sum(self)

    def excess(self, alpha: float = 0.05) -> Interval:
        return betting_interval(self._counts(), -1.0, 1.0, alpha)

    def exceeds(self, limit: float, alpha: float = 0.05) -> bool:
        """Whether the excess is above a limit; wrong at any time with probability α at most.

        >>> Differences(60, 20, 320).exceeds(0.02), Differences(6, 2, 32).exceeds(0.02)
        (True, False)
        """
        return _log_capital(self._counts(), -1.0, limit) > -math.log(alpha)

    def _counts(self) -> dict[float, int]:
        return {1.0: self.only_cascade, -1.0: self.only_slow, 0.0: self.neither_or_both}
