"""The three paths over recorded questions, as arrays: which candidates are asked for, and which of them wins.

`Odar.aask` does the same with one question and real models. Calibration and replay both call `simulate`; what
decides is in `path`, `stopping` and `fusion`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from odar.policy.fusion import FAST, SOLVE, VERIFY, CandidateArrays, Fusion
from odar.policy.path import HARD, MEDIUM, SIMPLE
from odar.policy.rules import Bools, Ints
from odar.policy.stopping import SamplesTaken, Stopping


@dataclass(frozen=True, slots=True)
class Simulation:
    """What happened to every question."""

    path: Ints
    """SIMPLE, MEDIUM or HARD; −1 for a method without paths."""
    asked: Bools
    """(N, M) recorded candidates that were asked for, and so paid."""
    read: Bools
    """(N, M) those among which the winner was chosen: sampling that stops early leaves some unread."""
    scored: Bools
    """(N, M) those that a surrogate scored, each by a call of its own."""
    winner: Ints
    """The column that won."""
    waves: Ints
    """Requests for slow samples, if one request gives several."""
    calls: Ints
    """Model invocations (SPEC 6.1), those that failed and the surrogate's among them."""


def simulate(
    candidates: CandidateArrays, path: Ints, fusion: Fusion, stopping: Stopping, samples: int
) -> Simulation:
    """Take the given path with every question.

    Args:
        candidates: what was recorded.
        path: SIMPLE, MEDIUM or HARD for each question.
        fusion: how the winner is chosen.
        stopping: when the Hard path stops.
        samples: slow samples of the Hard path, at most.
    """
    hard = (path == HARD)[:, None]
    taken = sample(candidates, stopping, samples if hard.any() else 0)
    column = np.arange(candidates.present.shape[1])
    read = hard & taken.read
    asked = hard & (column >= SOLVE) & (column < SOLVE + taken.asked[:, None])
    for mask in (read, asked):
        mask[:, FAST] = True
        mask[:, VERIFY] = path == MEDIUM
    read &= candidates.present
    view = fusion.compare(candidates, read)
    winner = np.where(path == SIMPLE, FAST, fusion.choose_rows(candidates, read))
    scored = view.eligible & (view.by_surrogate & (path != SIMPLE))[:, None]
    slow = np.where(path == HARD, taken.asked, path == MEDIUM)
    calls = 1 + slow + scored.sum(axis=1)
    return Simulation(path, asked, read, scored, winner, np.where(path == HARD, taken.waves, 0), calls)


def sample(candidates: CandidateArrays, stopping: Stopping, samples: int) -> SamplesTaken:
    """Take slow samples of every question until its vote is settled; masks are over all columns."""

    def whole(solves: Bools) -> Bools:
        mask = np.zeros(candidates.present.shape, dtype=bool)
        mask[:, SOLVE:] = solves
        return mask

    found = stopping.simulate(
        candidates.present[:, SOLVE:], samples, lambda read: candidates.votes(whole(read))[:, SOLVE:, SOLVE:]
    )
    return replace(found, read=whole(found.read))
