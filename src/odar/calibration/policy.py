"""Replay of recorded items: what each path would have answered, and at what price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from odar.calibration.fusion_fit import FusionFit
from odar.calibration.records import Attempt, Record
from odar.calibration.votes import Array, Bools, Ints, Votes, fuse
from odar.fusion.equivalence import group

FAST, VERIFY, SOLVE = 0, 1, 2
"""Columns of the votes: the fast answer, the verification, then the slow samples."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What each path gives for each item: columns are Simple, Medium, Hard."""

    correct: Bools
    calls: Ints
    cost: Array
    """US dollars; NaN where unknown."""

    def under(self, paths: Ints) -> tuple[Array, Array, Array]:
        """Right or wrong, calls and cost of each item, if it takes this path."""
        rows = np.arange(len(paths))
        return (
            self.correct[rows, paths].astype(np.float64),
            self.calls[rows, paths].astype(np.float64),
            self.cost[rows, paths],
        )


def votes_of(records: Sequence[Record], varentropy_weight: float) -> Votes:
    """All candidates of each record as one row: fast, verify, solves. Energies are raw free energies."""
    size = 2 + max(len(record.solves) for record in records)
    energy = np.full((len(records), size), np.nan)
    groups = np.full((len(records), size), -1, dtype=np.int64)
    correct = np.zeros((len(records), size), dtype=bool)
    for row, record in enumerate(records):
        attempts = (record.fast, record.verify, *record.solves)
        groups[row, : len(attempts)] = group([attempt.answer for attempt in attempts])
        for column, attempt in enumerate(attempts):
            energy[row, column] = free_energy_of(attempt, varentropy_weight)
            correct[row, column] = attempt.correct
    return Votes(energy, groups, correct, (FAST, VERIFY, *[SOLVE] * (size - 2)))


def free_energy_of(attempt: Attempt, varentropy_weight: float) -> float:
    """F = E + λ·V of a recorded attempt; NaN where it had no log-probabilities."""
    if attempt.energy is None or attempt.varentropy is None:
        return float("nan")
    return attempt.energy + varentropy_weight * attempt.varentropy


def path_votes(votes: Votes, path: int) -> Votes:
    """The rows with only the candidates that a path has: 1 Medium, 2 Hard."""
    absent = votes.groups.copy()
    if path == 1:
        absent[:, SOLVE:] = -1
    else:
        absent[:, VERIFY] = -1
    return Votes(votes.energy, absent, votes.correct & (absent >= 0), votes.sources)


def outcomes(records: Sequence[Record], votes: Votes, fit: FusionFit) -> Outcomes:
    """What each path would have done under a fitted fusion rule; the votes' energies must be aligned."""
    rows = np.arange(len(records))
    winners = [fuse(path_votes(votes, path), fit.beta, fit.skills) for path in (1, 2)]
    correct = np.stack([votes.correct[:, FAST], *(votes.correct[rows, w] for w in winners)], axis=1)
    calls = np.array([[1, 2, 1 + len(record.solves)] for record in records])
    cost = np.array([[_sum(r.fast), _sum(r.fast, r.verify), _sum(r.fast, *r.solves)] for r in records])
    return Outcomes(correct, calls, cost)


def paths(difficulty: Array, tau1: float, tau2: float) -> Ints:
    """0 Simple, 1 Medium, 2 Hard for each difficulty.

    >>> paths(np.array([0.1, 0.3, 0.9]), 0.3, 0.7).tolist()
    [0, 1, 2]
    """
    return np.asarray((difficulty >= tau1).astype(np.int64) + (difficulty >= tau2).astype(np.int64))


def _sum(*attempts: Attempt) -> float:
    return float(sum(np.nan if attempt.cost_usd is None else attempt.cost_usd for attempt in attempts))
