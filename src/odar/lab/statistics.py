"""Comparisons of policies (SPEC 7.4): intervals over folds, paired differences, tests, adjusted p-values."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from odar.errors import InputError
from odar.lab.intervals import RESAMPLES, Interval, bootstrap_mean
from odar.lab.replay.outcomes import Outcomes, best_mixture
from odar.lab.replay.policies import run_policies
from odar.lab.replay.table import ReplayTable
from odar.lab.selection import label_free_strata
from odar.policy.arrays import Array, Ints

LEVEL = 0.95
POWER = 0.8
MIN_ITEMS = 10
"""Minimum number of items for an interval or a p-value (SPEC 7.8)."""
MIN_SETS = 5
"""Minimum number of benchmarks for an interval over benchmarks."""
BOOTSTRAP_ITEMS = 30
BOOTSTRAP_DIFFERING = 10
"""Minimum numbers of items, and of items on which two policies differ, for the bootstrap: with fewer, its intervals
are too narrow. `tests/lab/test_statistics.py` simulates the coverage."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The paired difference between two policies on the same items."""

    interval: Interval
    """The mean paired difference with its 95% interval; NaN bounds if there are too few items."""
    p: float | None
    """Two-sided p-value; 1 if the two never differ, None with fewer than `MIN_ITEMS` items."""
    test: str
    """Name of the test: McNemar's exact test if all scores are 0 or 1, else a sign-flip permutation test."""
    items: int
    variance: float
    """Variance of the paired differences, with one added item in favour of each side."""

    @property
    def p_text(self) -> str:
        """The p-value as text: `p = 0.039`, `p < 0.001`."""
        text = format_p(self.p)
        return f"p {text}" if text.startswith("<") else f"p = {text}"

    def items_needed(self, points: float) -> int:
        """To show a difference of `points` percentage points at p < 0.05 with 80% power."""
        normal = NormalDist()
        z = normal.inv_cdf(1 - (1 - LEVEL) / 2) + normal.inv_cdf(POWER)
        return int(np.ceil(z**2 * self.variance / (points / 100) ** 2))


def fold_interval(values: ArrayLike, folds: ArrayLike) -> Interval:
    """The mean over folds with its t-based interval; NaN bounds for a single fold.

    >>> fold_interval([1, 0, 1, 1], [0, 0, 1, 1]).value
    0.75
    """
    scores = np.asarray(values, float)
    numbers = np.asarray(folds)
    means = np.array([scores[numbers == fold].mean() for fold in np.unique(numbers)])
    mean = float(means.mean())
    if len(means) < 2:
        return Interval(mean, float("nan"), float("nan"))
    half = _t_quantile(len(means) - 1) * float(means.std(ddof=1) / np.sqrt(len(means)))
    return Interval(mean, mean - half, mean + half)


def binomial_margin(accuracy: float, items: int) -> float:
    """Half the width of the 95% interval of a simple random sample; NaN with fewer than `MIN_ITEMS` items.

    >>> round(binomial_margin(0.982, 1000), 4)
    0.0082
    """
    return 1.96 * float(np.sqrt(accuracy * (1 - accuracy) / items)) if items >= MIN_ITEMS else float("nan")


def mean_over_sets(values: Sequence[float]) -> Interval:
    """The mean over benchmarks, with an interval if there are at least `MIN_SETS` of them.

    The interval says how the mean would change with other benchmarks of this kind.
    """
    if len(values) < MIN_SETS:
        return Interval(float(np.mean(values)), float("nan"), float("nan"))
    return bootstrap_mean(np.asarray(values, float), shares=False)


def seed_deviation(values: Array, seeds: Sequence[int]) -> float:
    """The standard deviation of the means of the seeds; NaN for a single seed."""
    means = [values[np.array(seeds) == seed].mean() for seed in sorted(set(seeds))]
    return float(np.std(means, ddof=1)) if len(means) > 1 else float("nan")


@cache
def _t_quantile(freedom: int) -> float:
    """The quantile of the t distribution for a two-sided 95% interval, by numerical integration.

    T is √freedom · tan a, where the angle a has a density in proportion to cos a to the power of freedom − 1.
    """
    edges = np.linspace(0, np.pi / 2, 200_001)
    middles = (edges[1:] + edges[:-1]) / 2
    shares = np.append(0.0, np.cumsum(np.cos(middles) ** (freedom - 1)))
    return float(np.sqrt(freedom) * np.tan(np.interp(LEVEL * shares[-1], shares, edges)))


def difference(
    first: ArrayLike,
    second: ArrayLike,
    strata: Sequence[Hashable] | None = None,
    resamples: int = RESAMPLES,
) -> Difference:
    """The mean of first minus second on the same items, with an interval and a p-value.

    The interval is a stratified paired bootstrap. With few items, or few on which the two differ, it is the
    interval of Bonett and Price (2012), which adds one item in favour of each side and so never has zero width.
    """
    a = np.asarray(first, float)
    b = np.asarray(second, float)
    if a.shape != b.shape or a.ndim != 1 or not len(a):
        raise InputError(f"scores of shapes {a.shape} and {b.shape} cannot be paired")
    gains = a - b
    n = len(gains)
    mean = float(gains.mean())
    centre = float(gains.sum()) / (len(gains) + 2)
    variance = float(((gains**2).sum() + 2) / (n + 2) - centre**2)
    binary = bool(np.isin(a, (0, 1)).all() and np.isin(b, (0, 1)).all())
    test = "McNemar" if binary else "sign-flip"
    if n < MIN_ITEMS:
        return Difference(Interval(mean, np.nan, np.nan), None, test, n, variance)
    if n < BOOTSTRAP_ITEMS or np.count_nonzero(gains) < BOOTSTRAP_DIFFERING:
        half = _t_quantile(n - 1) * float(np.sqrt(variance / (n + 2)))
        interval = Interval(mean, min(mean, max(-1.0, centre - half)), max(mean, min(1.0, centre + half)))
    else:
        interval = bootstrap_mean(gains, resamples, strata, shares=False)
    p = mcnemar_test(a, b) if binary else sign_flip_test(gains, resamples)
    return Difference(interval, p, test, n, variance)


def format_p(p: float | None) -> str:
    if p is None:
        return "too few items"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def sign_flip_test(differences: ArrayLike, resamples: int) -> float:
    """A paired permutation test: the share of random signs with a mean as far from zero."""
    nonzero = np.asarray(differences, float)
    nonzero = nonzero[nonzero != 0]
    if not len(nonzero):
        return 1.0
    rng = np.random.default_rng(0)
    extreme = 0
    block = max(1, 2_000_000 // len(nonzero))  # limits the memory
    observed = abs(nonzero.sum()) * (1 - 1e-12)
    for start in range(0, resamples, block):
        signs = rng.integers(0, 2, (min(block, resamples - start), len(nonzero))) * 2.0 - 1
        extreme += int((np.abs(signs @ nonzero) >= observed).sum())
    return (extreme + 1) / (resamples + 1)


def mcnemar_test(first: ArrayLike, second: ArrayLike) -> float:
    """McNemar's p-value, exact and two-sided, of two lists of right (1) and wrong (0)."""
    a = np.asarray(first).astype(bool)
    b = np.asarray(second).astype(bool)
    better = int((a & ~b).sum())
    worse = int((~a & b).sum())
    differing = better + worse
    i = np.arange(min(better, worse))
    log_binomials = np.append(0.0, np.cumsum(np.log((differing - i) / (i + 1))))
    return min(1.0, 2 * float(np.exp(log_binomials - differing * np.log(2)).sum()))


def benjamini_hochberg(p: Sequence[float | None]) -> list[float | None]:
    """Adjusted p-values: those below q are significant at false discovery rate q."""
    known = sorted((value for value in p if value is not None), reverse=True)
    scaled = [value * len(known) / (len(known) - i) for i, value in enumerate(known)]
    adjusted = dict(zip(known, np.minimum.accumulate([1.0, *scaled])[1:].tolist(), strict=True))
    return [None if value is None else adjusted[value] for value in p]


def item_means(values: ArrayLike, items: Sequence[Hashable]) -> tuple[Array, Ints]:
    """The mean of each item over its seeds, which are not independent, and the first row of each item."""
    scores = np.asarray(values, float)
    numbers: dict[Hashable, int] = {}
    index = np.array([numbers.setdefault(item, len(numbers)) for item in items])
    sums = np.bincount(index, weights=scores)
    counts = np.bincount(index)
    return sums / counts, np.unique(index, return_index=True)[1]


@dataclass(frozen=True, slots=True)
class PolicySummary:
    """The figures of one policy, per item."""

    name: str
    accuracy: Interval
    """Mean score with its stratified bootstrap interval."""
    folds: Interval
    """The t-based interval over folds (SPEC 7.4)."""
    seeds: float
    """Standard deviation between seeds; NaN for a single seed."""
    gain: Difference | None
    """Gain over the reference policy; None for the reference itself."""
    adjusted: float | None
    """p-value of the gain, adjusted over the whole table (Benjamini-Hochberg); None without a test."""
    calls: float
    cost_usd: float
    tokens: float | None
    median_s: float
    tail_s: float
    """95th percentile of the seconds."""
    mix: tuple[float, float, float]
    """Shares of the Simple, Medium and Hard path."""
    efficiency: float | None
    """Percentage points above single-fast per call (SPEC 7.5); None for single-fast, and without that row."""
    over_fixed: Interval | None
    """Gain over the best random mixture of fixed choices of the same cost (SPEC 9.9); None for those themselves."""
    note: str


def summarize_policies(
    table: ReplayTable, outcomes: Sequence[Outcomes], reference: Outcomes
) -> list[PolicySummary]:
    """The figures of each policy, with its gains over the reference and over mixtures of the fixed choices."""
    fixed, _ = run_policies(table, ["fixed"])
    strata = sampling_strata(table)
    names = item_names(table)
    folds = np.array(table.column("fold"))
    seeds = [key.seed for key in table.column("key")]
    base = next((each.mean_score for each in outcomes if each.name == "single-fast"), None)
    # gains over the reference, with p-values adjusted over the whole table
    gains = [
        None if each.name == reference.name else paired_difference(table, each.score, reference.score)
        for each in outcomes
    ]
    adjusted = benjamini_hochberg([gain.p if gain else None for gain in gains])
    rows = []
    for outcome, gain, p in zip(outcomes, gains, adjusted, strict=True):
        means, places = item_means(outcome.score, names)
        mean = outcome.mean_score
        calls = float(outcome.calls.mean())
        # the gain over the fixed choices at equal dollars
        over = None
        if fixed and outcome.name not in fixed:
            mixed = best_mixture([*fixed.values()], outcome.mean_usd)
            over = paired_difference(table, outcome.score, mixed.score).interval
        rows.append(
            PolicySummary(
                name=outcome.name,
                accuracy=bootstrap_mean(means, strata=[strata[i] for i in places]),
                folds=fold_interval(means, folds[places]),
                seeds=seed_deviation(outcome.score, seeds),
                gain=gain,
                adjusted=p,
                calls=calls,
                cost_usd=outcome.mean_usd,
                tokens=None if np.isnan(outcome.tokens).any() else float(outcome.tokens.mean()),
                median_s=float(np.median(outcome.seconds)),
                tail_s=float(np.percentile(outcome.seconds, 95)),
                mix=outcome.mix,
                efficiency=None if base is None or outcome.name == "single-fast" else 100 * (mean - base) / calls,
                over_fixed=over,
                note=outcome.note,
            )
        )
    return rows


def paired_difference(
    table: ReplayTable,
    first: Array,
    second: Array,
    rows: Sequence[int] | Ints | None = None,
    strata: Sequence[Hashable] | None = None,
) -> Difference:
    """The difference between two policies on rows of the table; `first` and `second` are their scores there.

    An item with several seeds counts once, by its mean.
    """
    strata = sampling_strata(table) if strata is None else strata
    rows = range(len(table)) if rows is None else rows
    names = item_names(table)
    chosen = [names[i] for i in rows]
    first_means, places = item_means(first, chosen)
    second_means, _ = item_means(second, chosen)
    return difference(first_means, second_means, [strata[rows[i]] for i in places])


def item_names(table: ReplayTable) -> list[tuple[str, str]]:
    """The set and the id of each row, without the seed."""
    return [(item.key.set, item.key.id) for item in table.items]


def sampling_strata(table: ReplayTable) -> list[Hashable]:
    """The benchmark of each row, and its subject or level there."""
    return [(item.key.set, item.stratum) for item in table.items]


def length_strata(table: ReplayTable) -> list[Hashable]:
    """Without labels: benchmark crossed with quarters of question length (SPEC 7.4)."""
    lengths = [len(item.query) for item in table.items]
    return list(label_free_strata([item.key.set for item in table.items], lengths))
