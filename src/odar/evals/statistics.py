"""How sure we are (SPEC 7.4): intervals over folds, paired differences, tests, and many tests at once.

Everything that scipy or statsmodels has is theirs; they are loaded when first needed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from odar.calibration.bootstrap import RESAMPLES, Interval, resampled_means
from odar.calibration.votes import Array, Ints
from odar.errors import InputError

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Difference:
    """How much better one policy is than another on the same items."""

    interval: Interval
    """The mean paired difference with its bootstrap interval."""
    p: float
    """Two-sided, from the bootstrap: 1 where the two never differ."""
    mcnemar: float | None
    """McNemar's exact p; None where scores are not all right or wrong."""


def fold_interval(values: ArrayLike, folds: ArrayLike, level: float = LEVEL) -> Interval:
    """The mean over folds with its t-based interval; no interval from a single fold.

    >>> fold_interval([1, 0, 1, 1], [0, 0, 1, 1]).value
    0.75
    """
    from scipy import stats

    scores, numbers = np.asarray(values, float), np.asarray(folds)
    means = np.array([scores[numbers == fold].mean() for fold in np.unique(numbers)])
    mean = float(means.mean())
    if len(means) < 2:
        return Interval(mean, float("nan"), float("nan"))
    error = float(means.std(ddof=1) / np.sqrt(len(means)))
    if error == 0:
        return Interval(mean, mean, mean)
    low, high = stats.t.interval(level, len(means) - 1, loc=mean, scale=error)
    return Interval(mean, float(low), float(high))


def difference(
    first: ArrayLike,
    second: ArrayLike,
    strata: Sequence[Hashable] | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Difference:
    """First minus second, item by item: the stratified paired bootstrap, and McNemar's test where it applies.

    >>> same = difference([1, 0, 1], [1, 0, 1])
    >>> same.interval.value, same.p, same.mcnemar
    (0.0, 1.0, 1.0)
    """
    a, b = np.asarray(first, float), np.asarray(second, float)
    if a.shape != b.shape or a.ndim != 1 or not len(a):
        raise InputError(f"scores of shapes {a.shape} and {b.shape} cannot be paired")
    apart = a - b
    drawn = resampled_means(apart, seed, resamples, strata)
    low, high = np.percentile(drawn, [2.5, 97.5])
    below, above = (float((side + 1) / (resamples + 1)) for side in ((drawn <= 0).sum(), (drawn >= 0).sum()))
    p = min(1.0, 2 * min(below, above))
    binary = bool(np.isin(a, (0, 1)).all() and np.isin(b, (0, 1)).all())
    return Difference(Interval(float(apart.mean()), float(low), float(high)), p, mcnemar(a, b) if binary else None)


def mcnemar(first: ArrayLike, second: ArrayLike, *, exact: bool = True) -> float:
    """McNemar's p for two policies that are right (1) or wrong (0) on the same items.

    Exact by the binomial distribution, or by chi-squared with continuity correction. 1 where they never differ.

    >>> round(mcnemar([1] * 10 + [0] * 2, [0] * 10 + [1] * 2), 4)
    0.0386
    """
    from statsmodels.stats.contingency_tables import mcnemar as test

    a, b = np.asarray(first).astype(bool), np.asarray(second).astype(bool)
    table = np.array([[(a & b).sum(), (a & ~b).sum()], [(~a & b).sum(), (~a & ~b).sum()]])
    if table[0, 1] == table[1, 0]:
        return 1.0  # nothing speaks for either; chi-squared of no difference at all would be 0/0
    return float(min(1.0, test(table, exact=exact, correction=True).pvalue))


def benjamini_hochberg(p: Sequence[float | None]) -> list[float | None]:
    """p-values adjusted for how many there are; significant at false discovery rate q where below q.

    >>> [round(x, 3) for x in benjamini_hochberg([0.01, 0.02, 0.03]) if x is not None]
    [0.03, 0.03, 0.03]
    """
    from scipy import stats

    known = [value for value in p if value is not None]
    adjusted = iter(stats.false_discovery_control(known, method="bh").tolist() if known else [])
    return [None if value is None else float(next(adjusted)) for value in p]


def over_seeds(values: ArrayLike, seeds: ArrayLike) -> tuple[float, float]:
    """Mean of the seeds' means, and their deviation; NaN from a single seed."""
    scores, numbers = np.asarray(values, float), np.asarray(seeds)
    means = np.array([scores[numbers == seed].mean() for seed in np.unique(numbers)])
    return float(means.mean()), float(means.std(ddof=1)) if len(means) > 1 else float("nan")


def by_item(values: ArrayLike, items: Sequence[Hashable]) -> tuple[Array, Ints]:
    """The mean of each item over its seeds, which are not independent, and where each item first stands."""
    scores = np.asarray(values, float)
    numbers: dict[Hashable, int] = {}
    index = np.array([numbers.setdefault(item, len(numbers)) for item in items])
    sums, counts = np.bincount(index, weights=scores), np.bincount(index)
    return sums / counts, np.unique(index, return_index=True)[1]
