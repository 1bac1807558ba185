"""Replay of recorded items: what each path would have answered, and at what price.

Fitting needs no more than this: all three paths of every record at once. `odar.evals.replay.walk` replays any
policy over a whole panel, with waves, prompts that are billed once, and ties broken as the engine breaks them. Both
choose winners by `votes.fuse`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from odar.calibration.evidence import FAST, SOLVE, VERIFY, Evidence
from odar.calibration.setup import Setup
from odar.policy.rules import Array, Bools, Ints, Votes, fuse


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What each path gives for each item: columns are Simple, Medium, Hard."""

    correct: Bools
    calls: Ints
    cost: Array
    """US dollars; NaN where unknown."""

    @property
    def price(self) -> Array:
        """(N, 3) US dollars; calls where some are unknown, or nothing is charged: all in one unit."""
        return self.cost if np.isfinite(self.cost).all() and self.cost.any() else self.calls.astype(np.float64)

    def under(self, paths: Ints) -> tuple[Array, Array, Array]:
        """Right or wrong, calls and cost of each item, if it takes this path."""
        rows = np.arange(len(paths))
        return (
            self.correct[rows, paths].astype(np.float64),
            self.calls[rows, paths].astype(np.float64),
            self.cost[rows, paths],
        )


def path_votes(votes: Votes, path: int) -> Votes:
    """The rows with only the candidates that a path has: 1 Medium, 2 Hard."""
    absent = votes.groups.copy()
    if path == 1:
        absent[:, SOLVE:] = -1
    else:
        absent[:, VERIFY] = -1
    return Votes(votes.energy, absent, votes.correct & (absent >= 0), votes.sources)


def outcomes(evidence: Evidence, setup: Setup) -> Outcomes:
    """What each path would have done with these items under a setup."""
    votes, rows = setup.align(evidence.votes), np.arange(len(evidence))
    skills = setup.fusion.skills[list(votes.sources)]
    winners = [fuse(path_votes(votes, path), setup.fusion.beta, skills) for path in (1, 2)]
    correct = np.stack([votes.correct[:, FAST], *(votes.correct[rows, w] for w in winners)], axis=1)
    return Outcomes(correct, evidence.calls, evidence.cost)
