"""Records → calibration: statistics, skills and β, then thresholds, all judged on folds they were not fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from odar.calibration.bootstrap import Interval, bootstrap_mean
from odar.calibration.fusion_fit import FOLDS, FusionFit, fit_fusion
from odar.calibration.policy import Outcomes, outcomes, path_votes, paths, votes_of
from odar.calibration.records import Record
from odar.calibration.votes import Array, Bools, Ints, Votes

GRID_1 = (0.2, 0.3, 0.4)
GRID_2 = (0.6, 0.7, 0.8)
"""The thresholds that are tried (SPEC 2.7)."""
WORSE = 0.01
"""A loss beyond this on held-out folds is not installed."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """τ1 and τ2."""

    tau1: float
    tau2: float


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a setting is expected to do, per item."""

    accuracy: Interval
    calls: Interval
    cost_usd: Interval | None
    mix: tuple[float, float, float]
    """Shares of Simple, Medium and Hard."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """The result of a calibration, and the evidence for it."""

    fusion: FusionFit
    thresholds: Thresholds
    means: Array
    deviations: Array
    before: Expectation
    after: Expectation
    difference: Interval
    """Accuracy after minus before, paired by item."""
    baselines: dict[str, Interval]
    """Accuracy of always Simple, always Medium, always Hard."""

    @property
    def worse(self) -> bool:
        """Whether this must not be installed (SPEC 5.10b): it loses on held-out folds, surely or by much."""
        return self.difference.high < 0 or self.difference.mean < -WORSE


def fit(
    records: Sequence[Record],
    current: Thresholds,
    current_fusion: FusionFit,
    varentropy_weight: float,
    seed: int = 42,
) -> Fitted:
    """Fit everything on all records, and say what to expect from folds each part was not fitted to."""
    votes = votes_of(records, varentropy_weight)
    difficulty = np.array([record.difficulty for record in records])
    everything = np.ones(len(records), dtype=bool)
    fusion, aligned = _fit_fusion(votes, everything, current_fusion)
    thresholds = _fit_thresholds(outcomes(records, aligned, fusion), difficulty, current)

    old = outcomes(records, aligned, current_fusion)
    before = old.under(paths(difficulty, current.tau1, current.tau2))
    after = tuple(np.zeros(len(records)) for _ in range(3))
    taken = np.zeros(len(records), dtype=np.int64)
    always = np.zeros((len(records), 3))
    fold = np.random.default_rng(seed).permutation(len(records)) % FOLDS
    for held_out in range(FOLDS):
        train, test = fold != held_out, fold == held_out
        part, seen = _fit_fusion(votes, train, current_fusion)
        new = outcomes(records, seen, part)
        chosen = _fit_thresholds(_rows(new, train), difficulty[train], current)
        path = paths(difficulty, chosen.tau1, chosen.tau2)
        taken[test] = path[test]
        always[test] = new.correct[test]
        for whole, piece in zip(after, new.under(path), strict=True):
            whole[test] = piece[test]
    names = ("always simple", "always medium", "always hard")
    return Fitted(
        fusion=fusion,
        thresholds=thresholds,
        means=_mean(votes),
        deviations=_deviation(votes),
        before=_expectation(before, paths(difficulty, current.tau1, current.tau2)),
        after=_expectation(after, taken),
        difference=bootstrap_mean(after[0] - before[0]),
        baselines={name: bootstrap_mean(always[:, column]) for column, name in enumerate(names)},
    )


def _fit_fusion(votes: Votes, train: Bools, current: FusionFit) -> tuple[FusionFit, Votes]:
    """β and skills from the training rows of both paths that fuse, and all rows aligned by the training rows.

    The rule in use stays unless a fitted one does clearly better.
    """
    known = votes.rows(train)
    aligned = replace(votes, energy=(votes.energy - _mean(known)) / _deviation(known))
    both = [path_votes(aligned.rows(train), path) for path in (1, 2)]
    stacked = Votes(
        np.concatenate([part.energy for part in both]),
        np.concatenate([part.groups for part in both]),
        np.concatenate([part.correct for part in both]),
        votes.sources,
    )
    return fit_fusion(stacked, current), aligned


def _mean(votes: Votes) -> Array:
    """μ per column; columns of one source share it."""
    return np.array([np.nanmean(_of_source(votes, source)) for source in votes.sources])


def _deviation(votes: Votes) -> Array:
    """σ per column; columns of one source share it."""
    found = np.array([np.nanstd(_of_source(votes, source)) for source in votes.sources])
    return np.where(found > 0, found, 1.0)


def _of_source(votes: Votes, source: int) -> Array:
    """All energies of one source, the tails drawn in: one absurd answer must not move μ and σ."""
    values = votes.energy[:, [i for i, each in enumerate(votes.sources) if each == source]].ravel()
    known = values[np.isfinite(values)]
    if known.size == 0:
        return np.array([0.0])
    return np.clip(known, *np.percentile(known, [1, 99]))


def _fit_thresholds(result: Outcomes, difficulty: Array, current: Thresholds) -> Thresholds:
    """The grid point with the most accuracy per cost among those that keep the accuracy of today (SPEC 2.7)."""

    def score(point: Thresholds) -> tuple[float, float]:
        right, calls, cost = result.under(paths(difficulty, point.tau1, point.tau2))
        price = cost.mean()
        return float(right.mean()), float(right.mean() / (price if price > 0 else calls.mean()))

    least = score(current)[0]
    points = [Thresholds(a, b) for a in GRID_1 for b in GRID_2]
    return max((p for p in (current, *points) if score(p)[0] >= least), key=lambda p: score(p)[1])


def _rows(result: Outcomes, index: Bools) -> Outcomes:
    return Outcomes(result.correct[index], result.calls[index], result.cost[index])


def _expectation(values: tuple[Array, ...], path: Ints) -> Expectation:
    right, calls, cost = values
    shares = np.bincount(path, minlength=3) / len(path)
    return Expectation(
        accuracy=bootstrap_mean(right),
        calls=bootstrap_mean(calls),
        cost_usd=None if np.isnan(cost).any() else bootstrap_mean(cost),
        mix=(float(shares[0]), float(shares[1]), float(shares[2])),
    )
