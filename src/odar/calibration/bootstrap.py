"""Intervals by resampling: how sure a mean, or a difference of two, is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


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

    def signed(self) -> str:
        """A difference, with its signs."""
        return "{:+.3f} [{:+.3f}, {:+.3f}]".format(*self)


def bootstrap_mean(values: ArrayLike, seed: int = 0, resamples: int = 10_000) -> Interval:
    """The mean with its percentile bootstrap interval; give it paired differences to compare two rules.

    >>> print(bootstrap_mean([1, 1, 1, 1]))
    1.000 [1.000, 1.000]
    """
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0:
        return Interval(float("nan"), float("nan"), float("nan"))
    rng = np.random.default_rng(seed)
    # In slices, so that ten thousand resamples of a large set do not fill the memory.
    size = max(1, 2_000_000 // data.size)
    means = [
        data[rng.integers(0, data.size, (min(size, resamples - done), data.size))].mean(axis=1)
        for done in range(0, resamples, size)
    ]
    low, high = np.percentile(np.concatenate(means), [2.5, 97.5])
    return Interval(float(data.mean()), float(low), float(high))
