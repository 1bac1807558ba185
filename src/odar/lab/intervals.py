"""Bootstrap confidence intervals: of means, of paired differences, and of any other figure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odar.errors import InputError

RESAMPLES = 10_000
_AT_ONCE = 2_000_000
"""Numbers drawn at a time, which limits the memory."""
MIN_STRATUM = 5
"""Smaller strata are pooled before the bootstrap (SPEC 7.8)."""
_Z = 1.959964
"""The 97.5% quantile of the normal distribution."""


class Interval(NamedTuple):
    """A figure with its 95% interval.

    >>> str(Interval(0.5, 0.25, 0.75)), Interval(0.01, -0.02, 0.04).signed()
    ('0.500 [0.250, 0.750]', '+0.010 [-0.020, +0.040]')
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f}" if np.isnan(self.low) else "{:.3f} [{:.3f}, {:.3f}]".format(*self)

    def signed(self) -> str:
        return f"{self.value:+.3f}" if np.isnan(self.low) else "{:+.3f} [{:+.3f}, {:+.3f}]".format(*self)


def bootstrap_mean(
    values: ArrayLike,
    resamples: int = RESAMPLES,
    strata: Sequence[Hashable] | None = None,
    *,
    shares: bool = True,
) -> Interval:
    """The mean with its percentile bootstrap interval; pass paired differences to compare two rules.

    The interval is widened by the ratio of the t to the normal quantile, which matters below about 100 values.
    If all values are 0 or 1 and fewer than 10 of either occur, the interval is Wilson's instead. Use `shares=False`
    for differences, calls and costs, which are 0 or 1 only by chance.

    >>> print(bootstrap_mean([0.5, 0.5, 0.5, 0.5]), bootstrap_mean([1] * 16))
    0.500 [0.500, 0.500] 1.000 [0.806, 1.000]
    """
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0:
        return Interval(float("nan"), float("nan"), float("nan"))
    mean = float(data.mean())
    ones = int((data == 1).sum())
    if shares and np.isin(data, (0, 1)).all() and min(ones, data.size - ones) < 10:
        return wilson_interval(mean, data.size)
    low, high = np.percentile(resampled_means(data, resamples, strata), [2.5, 97.5])
    wider = 1 + (_Z**2 + 1) / (4 * max(1, data.size - 1))  # t/z to first order (Cornish-Fisher)
    return Interval(mean, mean - wider * (mean - float(low)), mean + wider * (float(high) - mean))


def bootstrap_interval(
    figure: Callable[..., float], *columns: ArrayLike, resamples: int = 1000, rng: np.random.Generator
) -> Interval:
    """A 95% percentile interval over rows drawn with replacement.

    A resample on which the figure does not exist (no gap, no positives) is drawn again.
    """
    arrays = [np.asarray(c) for c in columns]
    value = figure(*arrays)
    drawn = []
    for _ in range(resamples * 20):
        rows = rng.integers(0, len(arrays[0]), len(arrays[0]))
        try:
            drawn.append(figure(*(a[rows] for a in arrays)))
        except InputError:
            continue
        if len(drawn) == resamples:
            break
    else:
        raise InputError("the figure does not exist on most resamples: too few rows")
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Interval(value, float(low), float(high))


def wilson_interval(share: float, n: int) -> Interval:
    """Wilson's interval has a width even if all cases are alike."""
    z2 = _Z**2
    centre = share + z2 / (2 * n)
    half = _Z * np.sqrt(share * (1 - share) / n + z2 / (4 * n**2))
    return Interval(
        share, max(0.0, float(centre - half) / (1 + z2 / n)), min(1.0, float(centre + half) / (1 + z2 / n))
    )


def resampled_means(
    values: NDArray[np.float64], resamples: int, strata: Sequence[Hashable] | None = None
) -> NDArray[np.float64]:
    """The means of resamples. A stratum of n values is resampled with n − 1 draws, which makes the variance of its
    mean unbiased (Rao and Wu, 1988). Strata with fewer than `MIN_STRATUM` values are pooled."""
    rng = np.random.default_rng(0)
    numbers = pooled_strata(strata, len(values))
    total = np.zeros(resamples)
    for number in np.unique(numbers):
        stratum = values[numbers == number]
        draws = max(1, len(stratum) - 1)
        total += _sums(stratum, draws, rng, resamples) * (len(stratum) / draws)
    return np.asarray(total / len(values))


def pooled_strata(strata: Sequence[Hashable] | None, count: int) -> NDArray[np.int64]:
    """A number for the stratum of each value; small strata share one.

    >>> pooled_strata(["a"] * 6 + ["b", "c"] + ["d"] * 5, 13).tolist()
    [0, 0, 0, 0, 0, 0, 0, 0, 3, 3, 3, 3, 3]
    >>> pooled_strata(["a", "b", "c", "d", "e"], 5).tolist()
    [-1, -1, -1, -1, -1]
    """
    seen: dict[Hashable, int] = {}
    names = [""] * count if strata is None else strata
    numbers = np.array([seen.setdefault(name, len(seen)) for name in names], dtype=np.int64)
    sizes = np.bincount(numbers)
    pooled = np.where(sizes[numbers] < MIN_STRATUM, -1, numbers)
    if 0 < (pooled == -1).sum() < MIN_STRATUM and sizes.max() >= MIN_STRATUM:
        pooled[pooled == -1] = sizes.argmax()  # too few even together: they join the largest
    return pooled


def _sums(values: NDArray[np.float64], draws: int, rng: np.random.Generator, resamples: int) -> NDArray[np.float64]:
    """The sums of resamples; if few values are distinct, such as right and wrong, draws how often each occurs."""
    distinct, counts = np.unique(values, return_counts=True)
    use_counts = len(distinct) <= values.size // 8
    batch = max(1, _AT_ONCE // (len(distinct) if use_counts else values.size))
    sums: list[NDArray[np.float64]] = []
    for start in range(0, resamples, batch):
        size = min(batch, resamples - start)
        if use_counts:
            sums.append(rng.multinomial(draws, counts / values.size, size) @ distinct)
        else:
            # resamples × draws
            sums.append(values[rng.integers(0, values.size, (size, draws))].sum(axis=1))
    return np.concatenate(sums)
