"""Histograms of served values, in which old values count less."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from odar.policy.arrays import Array
from odar.policy.energy import Alignment
from odar.policy.signals import GRID

RATIO = 1.02
"""Ratio of adjacent bins: rounding changes an energy by at most 1%."""
_LOWEST, _HIGHEST = 1e-4, 1e6
"""Values outside these bounds are clipped to them."""
_FENCE = 3.0
"""Tukey's outer fences: energies are clipped to this many interquartile ranges from the quartiles."""
_MIN_WEIGHT = 1e-3
"""Minimum weight of a bin; others are dropped."""
_HALF_LIFE_DAYS = 7.0
"""Days after which a served value counts half."""


def bin_index(energy: float) -> int:
    """The bin of an energy, which must not be NaN."""
    return round(math.log(min(max(energy, _LOWEST), _HIGHEST)) / math.log(RATIO))


@dataclass(frozen=True, slots=True)
class Histogram:
    """Histogram of the served values of one source; the weight of a value decays with its age.

    >>> Histogram.from_values([0.1, 0.2, 0.3], day=0.0).count
    3.0
    """

    bins: Mapping[int, Annotated[float, msgspec.Meta(ge=0)]] = field(default_factory=dict)
    """Weight by bin, as of `day`."""
    day: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Days since 1970, with a fraction."""

    @classmethod
    def from_values(cls, energies: Iterable[float], day: float) -> Histogram:
        """The histogram of energies that were all served on one day; NaN is left out."""
        bins = Counter(bin_index(energy) for energy in energies if not math.isnan(energy))
        return cls({number: float(count) for number, count in bins.items()}, day)

    @property
    def count(self) -> float:
        return math.fsum(self.bins.values())

    def __add__(self, other: Histogram) -> Histogram:
        """The sum of both, as of the later day."""
        day = max(self.day, other.day)
        one = self.decayed(day).bins
        two = other.decayed(day).bins
        bins = {number: one.get(number, 0.0) + two.get(number, 0.0) for number in (*one, *two)}
        return Histogram(bins, day)

    def decayed(self, day: float) -> Histogram:
        decay = 0.5 ** (max(0.0, day - self.day) / _HALF_LIFE_DAYS)
        bins = {number: weight * decay for number, weight in self.bins.items() if weight * decay > _MIN_WEIGHT}
        return Histogram(bins, max(day, self.day))

    def scaled(self, factor: float) -> Histogram:
        return Histogram({number: weight * factor for number, weight in self.bins.items()}, self.day)

    def quantiles(self, levels: ArrayLike = GRID) -> Array:
        """The smallest values that these shares of the weight do not exceed; by default those of a table."""
        values, weights = self._sorted_bins()
        cumulative = np.cumsum(weights)
        at = np.searchsorted(cumulative, np.asarray(levels) * cumulative[-1] * (1 - 1e-12))
        return np.asarray(values[np.minimum(at, len(values) - 1)])

    def alignment(self) -> Alignment | None:
        """μ and σ with outliers clipped to the fences; None if there are no two different energies."""
        if not self.bins:
            return None
        values, weights = self._sorted_bins()
        low, high = self.quantiles((0.25, 0.75)).tolist()
        margin = _FENCE * max(high - low, low * (RATIO - 1))  # at least one bin, if both quartiles are in the same
        values = np.clip(values, low - margin, high + margin)
        mean = float(np.average(values, weights=weights))
        deviation = math.sqrt(float(np.average((values - mean) ** 2, weights=weights)))
        return Alignment(mean, deviation) if deviation > 0 else None

    def _sorted_bins(self) -> tuple[Array, Array]:
        order = sorted(self.bins)
        return RATIO ** np.array(order, dtype=np.float64), np.array([self.bins[number] for number in order])
