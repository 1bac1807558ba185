"""How policies stand beside one another: one row each, with intervals, tests and what it cost."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from odar.calibration.bootstrap import Interval, bootstrap_mean
from odar.evals.replay.arrays import PanelArrays
from odar.evals.replay.simulate import PolicyOutcome
from odar.evals.selection import label_free_strata
from odar.evals.statistics import (
    Difference,
    benjamini_hochberg,
    by_item,
    difference,
    fold_interval,
    over_seeds,
)
from odar.policy.rules import Array


@dataclass(frozen=True, slots=True)
class Standing:
    """One policy in figures, all per item."""

    name: str
    accuracy: Interval
    """Mean score with its stratified bootstrap interval."""
    folds: Interval
    """The t-based interval over folds (SPEC 7.4)."""
    seeds: float
    """The deviation between seeds; NaN with a single one."""
    gain: Difference | None
    """Against the reference policy; None for the reference itself."""
    adjusted: float | None
    """The p of the gain by Benjamini-Hochberg over the whole table; None without a test."""
    calls: float
    cost_usd: float | None
    tokens: float | None
    median_s: float
    tail_s: float
    """The 95th percentile of the time."""
    mix: tuple[float, float, float]
    efficiency: float | None
    """Points of accuracy above single-fast for each call (SPEC 7.5); None without that row, and for it."""
    note: str


def standings(
    arrays: PanelArrays, outcomes: Sequence[PolicyOutcome], reference: PolicyOutcome, seed: int = 0
) -> list[Standing]:
    """A row for every outcome; gains are against the reference."""
    items, strata = item_names(arrays), strata_of(arrays)
    base = next((float(each.score.mean()) for each in outcomes if each.name == "single-fast"), None)
    gains = [
        None if each is reference else paired(each.score, reference.score, items, strata, seed) for each in outcomes
    ]
    tests = [gain.p if gain else None for gain in gains]
    rows = zip(outcomes, gains, benjamini_hochberg(tests), strict=True)
    return [_standing(arrays, each, gain, p, base, items, strata, seed) for each, gain, p in rows]


def paired(
    first: Array, second: Array, items: Sequence[Hashable], strata: Sequence[Hashable], seed: int = 0
) -> Difference:
    """The difference of two policies; an item that was asked under several seeds counts once, with its mean."""
    (a, places), (b, _) = by_item(first, items), by_item(second, items)
    return difference(a, b, [strata[i] for i in places], seed)


def item_names(arrays: PanelArrays) -> list[tuple[str, str]]:
    """What each row is about, whatever its seed."""
    return [(key.set, key.id) for key in arrays.items.keys]


def strata_of(arrays: PanelArrays) -> list[Hashable]:
    """The strata the items were drawn by: benchmark and its own subjects or levels."""
    return [(key.set, stratum) for key, stratum in zip(arrays.items.keys, arrays.items.stratum, strict=True)]


def label_free(arrays: PanelArrays) -> list[Hashable]:
    """Other strata that no label has a hand in: benchmark crossed with quarters of question length (SPEC 7.4)."""
    lengths = [len(text) for text in arrays.items.query]
    return list(label_free_strata([key.set for key in arrays.items.keys], lengths))


def known_mean(values: Array) -> float | None:
    """The mean, or None where a part of it is unknown."""
    return None if np.isnan(values).any() else float(values.mean())


def _standing(
    arrays: PanelArrays,
    outcome: PolicyOutcome,
    gain: Difference | None,
    adjusted: float | None,
    base: float | None,
    items: Sequence[Hashable],
    strata: Sequence[Hashable],
    seed: int,
) -> Standing:
    means, places = by_item(outcome.score, items)
    calls = float(outcome.calls.mean())
    above = (
        None
        if base is None or outcome.name == "single-fast"
        else 100 * (float(outcome.score.mean()) - base) / calls
    )
    return Standing(
        name=outcome.name,
        accuracy=bootstrap_mean(means, seed, strata=[strata[i] for i in places]),
        folds=fold_interval(means, arrays.items.fold[places]),
        seeds=over_seeds(outcome.score, [key.seed for key in arrays.items.keys])[1],
        gain=gain,
        adjusted=adjusted,
        calls=calls,
        cost_usd=known_mean(outcome.cost),
        tokens=known_mean(outcome.tokens),
        median_s=float(np.median(outcome.seconds)),
        tail_s=float(np.percentile(outcome.seconds, 95)),
        mix=outcome.mix,
        efficiency=above,
        note=outcome.note,
    )
