"""Simulation of the three paths over recorded questions, as arrays.

`Odar.aask` does the same for one question with real models. Calibration and replay both call `simulate`; the
decisions are made in `path`, `stopping` and `fusion`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from odar.policy.arrays import Bools, Ints
from odar.policy.fusion import FAST, SOLVE, VERIFY, CandidateArrays, Fusion
from odar.policy.path import HARD, MEDIUM, SIMPLE
from odar.policy.stopping import Stopping


@dataclass(frozen=True, slots=True)
class Simulation:
    """The simulated outcome of every question."""

    path: Ints
    """SIMPLE, MEDIUM or HARD; −1 for a method without paths."""
    asked: Bools
    """(N, M) recorded candidates that were requested, and therefore paid."""
    read: Bools
    """(N, M) candidates among which the winner was chosen; if sampling stops early, some are not read."""
    scored: Bools
    """(N, M) candidates that a surrogate scored, with one call each."""
    winner: Ints
    """The winning column."""
    waves: Ints
    """Number of requests for slow samples, if one request gives several."""
    calls: Ints
    """Number of model calls (SPEC 6.1), including failed ones and those of the surrogate."""


def simulate(
    candidates: CandidateArrays, path: Ints, fusion: Fusion, stopping: Stopping, samples: int
) -> Simulation:
    """Return the outcome of every question on the given path, with at most `samples` on the Hard path."""
    hard, solves = path == HARD, np.arange(candidates.present.shape[1]) - SOLVE
    read, taken = simulate_sampling(candidates, stopping, samples if hard.any() else 0)
    read &= hard[:, None]
    asked = hard[:, None] & (solves >= 0) & (solves < taken[:, None])
    for mask in (read, asked):
        mask[:, FAST] = True
        mask[:, VERIFY] = path == MEDIUM
    read &= candidates.present
    view = fusion.compare(candidates, read)
    winner = np.where(path == SIMPLE, FAST, fusion.choose_rows(candidates, read))
    scored = view.eligible & (view.by_surrogate & (path != SIMPLE))[:, None]
    calls = 1 + np.where(hard, taken, path == MEDIUM) + scored.sum(axis=1)
    waves = np.where(hard, 1 + (taken > stopping.first_size(samples)), 0)
    return Simulation(path, asked, read, scored, winner, waves, calls)


def simulate_sampling(candidates: CandidateArrays, stopping: Stopping, samples: int) -> tuple[Bools, Ints]:
    """Take recorded slow samples in their order until the vote is settled: `odar.agents.flow.Sampler` as arrays.

    Returns (N, M) the samples that are read, and (N,) how many were requested and paid: a whole wave, even if its
    first samples settle the vote. A sample that was not recorded counts as requested and failed.
    """
    solves, first = np.arange(candidates.present.shape[1]) - SOLVE, stopping.first_size(samples)
    read = candidates.present & (solves >= 0) & (solves < first)

    def settled(end: int) -> Bools:
        votes = candidates.votes(read)[:, SOLVE:end, SOLVE:end]  # no other column is read yet
        return stopping.are_settled(votes, samples - read.sum(axis=1))

    # a model without any answer in the first wave is not asked again
    goes_on = read.any(axis=1) & ~settled(SOLVE + first) if first < samples else np.zeros(len(read), dtype=bool)
    asked = np.where(goes_on, samples, first)
    for each in range(SOLVE + first, min(SOLVE + samples, len(solves))):
        read[:, each] = candidates.present[:, each] & goes_on
        goes_on &= ~(settled(each + 1) & candidates.present[:, each])
    return read, asked
