"""What a policy did with every item, and what that cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from odar.evals.replay.tape import FAST, SOLVE, VERIFY, Tape
from odar.policy.rules import Array, Bools, Ints

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


@dataclass(frozen=True, slots=True)
class Play:
    """What was asked for and looked at, before it is priced."""

    paid: Bools
    """(N, M): answers that were asked for."""
    seen: Bools
    """(N, M): those among which the winner was chosen; sampling that stops early leaves some unread."""
    winner: Ints
    path: Ints
    waves: Ints
    """(N,): requests for slow samples, where one request gives several."""
    looked: Bools
    """(N,): whether the slow samples waited for the fast answer."""


def settle(tape: Tape, name: str, play: Play, note: str = "") -> Outcome:
    """Price a play: calls, money, tokens and time."""
    answers, rows = tape.answers, np.arange(len(tape))
    score = answers.score
    return Outcome(
        name=name,
        score=score[rows, play.winner],
        calls=play.paid.sum(axis=1).astype(np.float64),
        cost=_sum(answers.output_usd, play.paid) + _prompts(tape, play),
        tokens=_sum(answers.output, play.paid),
        seconds=_seconds(tape, play),
        path=play.path,
        winner=play.winner,
        best=np.where(play.seen, score, -np.inf).max(axis=1),
        worst=np.where(play.seen, score, np.inf).min(axis=1),
        note=note,
    )


def _prompts(tape: Tape, play: Play) -> Array:
    """What reading prompts cost: once for every request."""
    prompts, single = tape.answers.prompt_usd, play.paid.copy()
    together = _together(tape) & play.paid[:, SOLVE:].any(axis=1)
    single[together, SOLVE:] = False
    return _sum(prompts, single) + np.where(together, prompts[:, SOLVE] * play.waves, 0.0)


def _seconds(tape: Tape, play: Play) -> Array:
    """The fast answer, then the verification; the samples beside the fast answer, or after it if it was waited for.

    A request for several samples is recorded with the time all of them took: each wave counts that much at most.
    """
    seconds = np.where(play.paid, tape.answers.seconds, 0.0)
    samples = seconds[:, SOLVE:].max(axis=1, initial=0.0) * np.maximum(play.waves, 1)
    first = seconds[:, FAST] + seconds[:, VERIFY]
    one_by_one = play.looked | play.paid[:, VERIFY]
    return np.asarray(np.where(one_by_one, first + samples, np.maximum(first, samples)))


def _together(tape: Tape) -> Bools:
    """(N,): whether one request gave the item's slow samples."""
    by_source = np.array([bool(tape.header.together[source["model"]]) for source in tape.header.sources])
    return np.asarray(by_source[tape.answers.source[:, SOLVE]])


def _sum(values: Array, mask: Bools) -> Array:
    return np.asarray(np.where(mask, values, 0.0).sum(axis=1))
