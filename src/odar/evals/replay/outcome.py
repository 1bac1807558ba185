"""What a policy did with every item, and what that cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from odar.evals.replay.tape import Tape
from odar.policy.fusion import FAST, SOLVE, VERIFY
from odar.policy.rules import Array, Bools, Ints
from odar.policy.simulation import Simulation

NO_PATH = -1
"""For policies that know no paths."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One policy over a tape; every array has an entry per item."""

    name: str
    score: Array
    """By the benchmark's metric, from 0 to 1."""
    calls: Array
    cost: Array
    """US dollars; NaN where unknown."""
    tokens: Array
    """Generated; NaN where unknown."""
    seconds: Array
    """As long as the slowest chain of requests took when the panel was collected."""
    path: Ints
    """0 Simple, 1 Medium, 2 Hard, −1 where the policy knows no paths."""
    winner: Ints
    """The column whose answer was given; −1 for a mean over several runs."""
    best: Array
    """The score of the best answer it had to choose from."""
    worst: Array
    """The score of the worst."""
    note: str = ""
    """What a reader must know to read the row rightly."""

    @property
    def mix(self) -> tuple[float, float, float]:
        """Shares of Simple, Medium and Hard; NaN where the policy knows no paths."""
        if (self.path == NO_PATH).any():
            return (float("nan"),) * 3
        shares = np.bincount(self.path, minlength=3) / len(self.path)
        return float(shares[0]), float(shares[1]), float(shares[2])


def settle(tape: Tape, name: str, run: Simulation, note: str = "", *, looked: Bools | None = None) -> Outcome:
    """Price a simulation: calls, money, tokens and time; `looked`: where samples waited for the fast answer."""
    answers, rows = tape.answers, np.arange(len(tape))
    score = answers.score
    return Outcome(
        name=name,
        score=score[rows, run.winner],
        calls=run.calls.astype(np.float64),
        cost=_sum(answers.output_usd, run.asked) + _prompts(tape, run),
        tokens=_sum(answers.output, run.asked),
        seconds=_seconds(tape, run, looked),
        path=run.path,
        winner=run.winner,
        best=np.where(run.read, score, -np.inf).max(axis=1),
        worst=np.where(run.read, score, np.inf).min(axis=1),
        note=note,
    )


def _prompts(tape: Tape, run: Simulation) -> Array:
    """What reading prompts cost: once for every request."""
    prompts, single = tape.answers.prompt_usd, run.asked.copy()
    together = _together(tape) & run.asked[:, SOLVE:].any(axis=1)
    single[together, SOLVE:] = False
    return _sum(prompts, single) + np.where(together, prompts[:, SOLVE] * run.waves, 0.0)


def _seconds(tape: Tape, run: Simulation, looked: Bools | None) -> Array:
    """The fast answer, then the verification; the samples beside the fast answer, or after it if it was waited for.

    A request for several samples is recorded with the time all of them took: each wave counts that much at most.
    """
    seconds = np.where(run.asked, tape.answers.seconds, 0.0)
    samples = seconds[:, SOLVE:].max(axis=1, initial=0.0) * np.maximum(run.waves, 1)
    first = seconds[:, FAST] + seconds[:, VERIFY]
    one_by_one = run.asked[:, VERIFY] if looked is None else looked | run.asked[:, VERIFY]
    return np.asarray(np.where(one_by_one, first + samples, np.maximum(first, samples)))


def _together(tape: Tape) -> Bools:
    """(N,): whether one request gave the item's slow samples."""
    by_source = np.array([bool(tape.header.together[source["model"]]) for source in tape.header.sources])
    return np.asarray(by_source[tape.answers.source[:, SOLVE]])


def _sum(values: Array, mask: Bools) -> Array:
    return np.asarray(np.where(mask, values, 0.0).sum(axis=1))
