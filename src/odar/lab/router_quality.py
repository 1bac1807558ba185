"""Quality of a router (SPEC 7.6, 7.9): APGR, CPT, AUROC, RouterArena's score, robustness of paths.

A router scores every query; the queries with the highest scores go to the strong model. Definitions follow RouteLLM
(arXiv 2406.18665): the performance gap recovered at a share c of strong calls is

    PGR(c) = (accuracy(c) − accuracy of weak) / (accuracy of strong − accuracy of weak)

APGR is the area under PGR over ten bins of c; CPT(x) is the least share of strong calls with PGR ≥ x.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from odar.errors import InputError
from odar.lab.intervals import Interval, bootstrap_interval
from odar.policy.arrays import Array

_ARENA_COSTS = (0.0044, 200.0)
"""Dollars per 1,000 questions at which RouterArena's cost term is 1 and 0."""
_ARENA_BETA = 0.1
"""β of RouterArena's weighted harmonic mean."""


def accuracy_curve(score: ArrayLike, weak: ArrayLike, strong: ArrayLike) -> Array:
    """The accuracy with the 0, 1, ..., n queries of highest score sent to the strong model.

    Tied queries share their gain evenly, the mean over random orders: a constant score gives the straight line of
    a random router.

    >>> accuracy_curve([2, 1], weak=[0, 1], strong=[1, 1]).tolist()
    [0.5, 1.0, 1.0]
    """
    scores, low, high = _checked_columns(score, weak, strong)
    # by score, from the highest: the number of each query's score, and how many queries share it
    _, ties, sizes = np.unique(-scores, return_inverse=True, return_counts=True)
    gains = np.repeat(np.bincount(ties, weights=high - low) / sizes, sizes)
    return cast(Array, low.mean() + np.r_[0.0, np.cumsum(gains)] / len(scores))


def gap_recovered(score: ArrayLike, weak: ArrayLike, strong: ArrayLike, shares: ArrayLike) -> Array:
    """PGR at each share of strong calls, linearly interpolated between whole queries."""
    curve = accuracy_curve(score, weak, strong)
    gap = curve[-1] - curve[0]
    if gap <= 0:
        against = f"{curve[-1]:.4f} against {curve[0]:.4f}"
        raise InputError(f"the strong model is not better ({against}): no gap to recover")
    at = np.interp(np.asarray(shares, float), np.linspace(0, 1, len(curve)), curve)
    return cast(Array, (at - curve[0]) / gap)


def apgr(score: ArrayLike, weak: ArrayLike, strong: ArrayLike) -> float:
    """The average performance gap recovered: trapezoids over ten bins of the share of strong calls.

    >>> round(apgr([0, 0, 0, 0], weak=[0, 1, 0, 1], strong=[1, 1, 1, 1]), 6)
    0.5
    """
    shares = np.linspace(0, 1, 11)
    return float(np.trapezoid(gap_recovered(score, weak, strong, shares), shares))


def cpt(score: ArrayLike, weak: ArrayLike, strong: ArrayLike, target: float) -> float:
    """The call-performance threshold: the least share of strong calls that recovers `target` of the gap.

    >>> cpt([4, 3, 2, 1], weak=[0, 0, 1, 1], strong=[1, 1, 1, 1], target=0.5)
    0.25
    """
    size = len(np.asarray(score))
    recovered = gap_recovered(score, weak, strong, np.linspace(0, 1, size + 1))
    return float(np.flatnonzero(recovered >= target - 1e-12)[0] / size)


def arena_score(accuracy: float, cost_usd: float) -> float:
    """RouterArena's score (arXiv 2510.00202), a weighted harmonic mean of accuracy and log₂ cost (SPEC 7.9).

    The cost term is 1 at 0.0044 dollars per 1,000 questions or less, and 0 at 200 dollars or more.

    >>> round(arena_score(0.75, 0.001), 4), arena_score(0.9, 1.0)
    (0.7163, 0.0)
    """
    if not 0 <= accuracy <= 1 or not cost_usd >= 0:
        raise InputError(f"accuracy {accuracy} and cost {cost_usd}: expected a share and a cost of at least 0")
    low, high = np.log2(_ARENA_COSTS)
    cost = np.log2(np.clip(1000 * cost_usd, *_ARENA_COSTS))
    cheapness = float((high - cost) / (high - low))
    total = _ARENA_BETA * accuracy + cheapness
    return float((1 + _ARENA_BETA) * accuracy * cheapness / total) if total else 0.0


def path_robustness(before: ArrayLike, after: ArrayLike) -> tuple[float, float]:
    """The share of paraphrased questions that keep their path, and the same corrected for chance (SPEC 7.9).

    A router that sends everything down one path keeps every path. The correction is Cohen's kappa: 0 is the
    expected agreement of two independent choices with these path mixes, 1 is every path kept.

    >>> kept, corrected = path_robustness([0, 0, 1, 2], [0, 0, 1, 1])
    >>> kept, round(corrected, 3)
    (0.75, 0.6)
    >>> path_robustness([1, 1], [1, 1])
    (1.0, 0.0)
    """
    a, b = _checked_columns(before, after)
    kept = float((a == b).mean())
    chance = sum(float((a == path).mean() * (b == path).mean()) for path in np.unique(np.r_[a, b]))
    return kept, (kept - chance) / (1 - chance) if chance < 1 else 0.0


class RouterRow(NamedTuple):
    """The figures of one router on one set."""

    router: str
    apgr: Interval
    cpt50: float
    cpt80: float
    auroc: float
    """AUROC of the score for failures of the weak model."""


def router_row(name: str, score: Array, weak: Array, strong: Array, rng: np.random.Generator) -> RouterRow:
    return RouterRow(
        router=name,
        apgr=bootstrap_interval(apgr, score, weak, strong, rng=rng, resamples=300),
        cpt50=cpt(score, weak, strong, 0.5),
        cpt80=cpt(score, weak, strong, 0.8),
        auroc=auroc(score, 1 - weak),
    )


def auroc(score: ArrayLike, label: ArrayLike) -> float:
    """The probability that a positive outranks a negative; ties count half (Mann-Whitney)."""
    s = np.asarray(score, float)
    positive = np.asarray(label).astype(bool)
    n = int(positive.sum())
    m = int((~positive).sum())
    if not n or not m:
        raise InputError("AUROC needs both positives and negatives")
    _, inverse, counts = np.unique(s, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return float((ranks[positive].sum() - n * (n + 1) / 2) / (n * m))


def pearson(a: ArrayLike, b: ArrayLike) -> float:
    """Pearson's correlation; 0 if one side is constant."""
    x, y = (np.asarray(each, float) for each in (a, b))
    x = x - x.mean()
    y = y - y.mean()
    norm = float(np.sqrt((x @ x) * (y @ y)))
    return float(np.clip(x @ y / norm, -1, 1)) if norm > 0 else 0.0


def _checked_columns(*columns: ArrayLike) -> Sequence[Array]:
    arrays = [np.asarray(c, float) for c in columns]
    if (shapes := {a.shape for a in arrays}) != {(arrays[0].size,)} or not arrays[0].size:
        raise InputError(f"columns of shapes {shapes}: expected equal, one-dimensional, not empty")
    if not all(np.isfinite(a).all() for a in arrays):
        raise InputError("scores and outcomes must be finite")
    return arrays
