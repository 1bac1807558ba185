"""Intervals by resampling: how sure a mean, or a difference of two, is."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

RESAMPLES = 10_000
_AT_ONCE = 2_000_000
"""Numbers drawn at a time, so that ten thousand resamples of a large set do not fill the memory."""


class Interval(NamedTuple):
    """A figure with its 95% interval.

    >>> str(Interval(0.5, 0.25, 0.75)), Interval(0.01, -0.02, 0.04).signed()
    ('0.500 [0.250, 0.750]', '+0.010 [-0.020, +0.040]')
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return "{:.3f} [{:.3f}, {:.3f}]".format(*self)

    def signed(self, digits: int = 3) -> str:
        """A difference, with its signs."""
        value, low, high = (f"{each:+.{digits}f}" for each in self)
        return f"{value} [{low}, {high}]"


def bootstrap_mean(
    values: ArrayLike, seed: int = 0, resamples: int = RESAMPLES, strata: Sequence[Hashable] | None = None
) -> Interval:
    """The mean with its percentile bootstrap interval; give it paired differences to compare two rules.

    >>> print(bootstrap_mean([1, 1, 1, 1]))
    1.000 [1.000, 1.000]
    """
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0:
        return Interval(float("nan"), float("nan"), float("nan"))
    low, high = np.percentile(resampled_means(data, seed, resamples, strata), [2.5, 97.5])
    return Interval(float(data.mean()), float(low), float(high))


def resampled_means(
    values: NDArray[np.float64], seed: int, resamples: int, strata: Sequence[Hashable] | None = None
) -> NDArray[np.float64]:
    """The means of so many samples with replacement, each with as many of every stratum as there are."""
    rng = np.random.default_rng(seed)
    numbers: dict[Hashable, int] = {}
    names = [""] * len(values) if strata is None else strata
    index = np.array([numbers.setdefault(name, len(numbers)) for name in names])
    sums = [_sums(values[index == number], rng, resamples) for number in range(len(numbers))]
    return np.asarray(np.sum(sums, axis=0) / len(values))


def _sums(values: NDArray[np.float64], rng: np.random.Generator, resamples: int) -> NDArray[np.float64]:
    """The sums of so many samples with replacement.

    Drawing n items is drawing how often each distinct value comes up: where there are few, as with right and wrong,
    a multinomial over them takes the place of n numbers.
    """
    distinct, counts = np.unique(values, return_counts=True)
    few = len(distinct) <= values.size // 8
    slice_ = max(1, _AT_ONCE // (len(distinct) if few else values.size))
    sums = [
        rng.multinomial(values.size, counts / values.size, size) @ distinct
        if few
        else values[rng.integers(0, values.size, (size, values.size))].sum(axis=1)
        for start in range(0, resamples, slice_)
        for size in [min(slice_, resamples - start)]
    ]
    return np.concatenate(sums)
