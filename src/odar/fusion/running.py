"""μ and σ of served free energies, estimated as traffic goes by: robust, mergeable, in no order (SPEC 5.5).

Energies are counted in bins of equal ratio, so that one outlier is one count among many, two processes' counts
simply add up, and no order of arrival matters. Old counts fade: after a half-life they weigh half.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from odar.fusion.energy import Alignment

RATIO = 1.02
"""From one bin to the next: no energy is off by more than 1%."""
_LOWEST, _HIGHEST = 1e-4, 1e3
"""Beyond these an energy counts as one of them."""
_FENCE = 3.0
"""Tukey's outer fences: energies farther from the quartiles than this many times their distance are pulled in."""
_FEWEST = 1e-3
"""A bin that has faded below this is forgotten."""


def bin_of(energy: float) -> int:
    """The bin an energy falls into; an infinite one falls into the last, and NaN has none.

    >>> bin_of(1.0), bin_of(1.03), bin_of(0.0) == bin_of(1e-9)
    (0, 1, True)
    """
    return round(math.log(min(max(energy, _LOWEST), _HIGHEST)) / math.log(RATIO))


@dataclass(frozen=True, slots=True)
class Running:
    """What has been served by one source.

    >>> Running.of([0.1, 0.2, 0.3], day=0.0).count
    3.0
    """

    bins: Mapping[int, float] = field(default_factory=dict)
    """Weight by bin, as of `day`."""
    day: float = 0.0
    """Days since 1970, with a fraction."""
    seen: int = 0
    """Candidates in all; these do not fade."""

    @classmethod
    def of(cls, energies: Iterable[float], day: float) -> Running:
        """Counts of energies that were all served on one day; what is no number is left out."""
        bins: dict[int, float] = {}
        numbers = [energy for energy in energies if not math.isnan(energy)]
        for energy in numbers:
            bins[bin_of(energy)] = bins.get(bin_of(energy), 0.0) + 1.0
        return cls(bins, day, len(numbers))

    @property
    def count(self) -> float:
        """How many candidates it is worth by now."""
        return math.fsum(self.bins.values())

    def merged(self, other: Running, half_life: float) -> Running:
        """Both together, as of the later day. Which is given first, and in what order, makes no difference."""
        day = max(self.day, other.day)
        bins: dict[int, float] = {}
        for part in (self.faded(day, half_life), other.faded(day, half_life)):
            for number, weight in part.bins.items():
                bins[number] = bins.get(number, 0.0) + weight
        return Running(bins, day, self.seen + other.seen)

    def faded(self, day: float, half_life: float) -> Running:
        """The same counts as they weigh on a later day.

        >>> Running.of([0.1, 0.2], day=0.0).faded(day=7.0, half_life=7.0).count
        1.0
        """
        left = 0.5 ** (max(0.0, day - self.day) / half_life)
        bins = {number: weight * left for number, weight in self.bins.items() if weight * left > _FEWEST}
        return Running(bins, max(day, self.day), self.seen)

    def alignment(self) -> Alignment | None:
        """μ and σ with outliers pulled in to the fences; None where there are no two different energies."""
        if not self.bins:
            return None
        order = sorted(self.bins)
        values = RATIO ** np.array(order, dtype=np.float64)
        weights = np.array([self.bins[number] for number in order])
        low, high = (_quantile(values, weights, share) for share in (0.25, 0.75))
        reach = _FENCE * max(high - low, low * (RATIO - 1))  # where half of all are in one bin, still a little room
        values = np.clip(values, low - reach, high + reach)
        mean = float(np.average(values, weights=weights))
        deviation = math.sqrt(float(np.average((values - mean) ** 2, weights=weights)))
        return Alignment(mean, deviation) if deviation > 0 else None


def _quantile(values: np.ndarray, weights: np.ndarray, share: float) -> float:
    """The smallest value that at least this share of the weight does not exceed."""
    reached = np.cumsum(weights)
    at = int(np.searchsorted(reached, share * reached[-1] * (1 - 1e-12)))
    return float(values[min(at, len(values) - 1)])
