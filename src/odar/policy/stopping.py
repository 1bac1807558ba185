"""When to stop sampling: once the leading answer cannot plausibly be overtaken (SPEC 5.12).

Free text has no votes to count: there a sample supports each answer to the degree s that they are similar (SPEC
5.15), and a rival counts to the degree 1 − s that it is another answer than the leader. If s is 0 or 1, these are
the votes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import comb

import numpy as np

from odar.policy.arrays import Array, Bools, Ints
from odar.policy.rules import TIE


@cache
def probability_of_lead(leader: int, runner_up: int) -> float:
    """P(p₁ > p₂) for two answers with these numbers of votes, under a uniform prior.

    Given that a sample gives one of the two, the leader's share is Beta(v₁ + 1, v₂ + 1), and the probability that
    it exceeds one half is a binomial sum.

    >>> probability_of_lead(3, 0), probability_of_lead(2, 1), probability_of_lead(0, 0)
    (0.9375, 0.6875, 0.5)
    """
    trials = leader + runner_up + 1
    ahead: int = sum(comb(trials, k) for k in range(leader + 1))
    return ahead / (1 << trials)


@dataclass(frozen=True, slots=True)
class Stopping:
    """How the Hard path samples: a first wave, then the rest unless the vote is settled.

    Args:
        confidence: stop when the leader is really ahead with this probability; 1 stops only when no outcome of
            the remaining samples can change the leader; None always takes every sample, all at once.
        first_wave: size of the first wave.
    """

    confidence: float | None
    first_wave: int = 3

    def is_settled(self, votes: Array, remaining: int) -> bool:
        """Return whether votes, (n, n) s between the answers, settle it with this many samples still to come."""
        return bool(self.are_settled(votes[None], np.array([remaining]))[0])

    def first_size(self, samples: int) -> int:
        """Return the size of the first wave out of `samples` in all."""
        return samples if self.confidence is None else min(self.first_wave, samples)

    def are_settled(self, s: Array, remaining: Ints) -> Bools:
        """Return whether (N, M, M) similarities settle the answers of N questions; a row of zeros is no vote."""
        if not s.shape[1] or self.confidence is None:
            return np.zeros(len(s), dtype=bool)
        support = s.sum(axis=2)
        rival = ((1 - s) * support[:, None, :]).max(axis=2)
        certain = support > rival + remaining[:, None] + TIE
        likely = _interpolated(support, rival) >= self.confidence - TIE
        return np.asarray(((support > 0) & (certain | likely)).any(axis=1))


def _interpolated(leader: Array, runner_up: Array) -> Array:
    """`probability_of_lead` of votes that are no whole numbers, linear between those that are."""
    counts = range(leader.shape[1] + 2)
    table = np.array([[probability_of_lead(a, b) for b in counts] for a in counts])
    low_a, low_b = np.floor(leader + TIE).astype(int), np.floor(runner_up + TIE).astype(int)
    part_a, part_b = np.maximum(leader - low_a, 0.0), np.maximum(runner_up - low_b, 0.0)
    low, high = (table[a, low_b] * (1 - part_b) + table[a, low_b + 1] * part_b for a in (low_a, low_a + 1))
    return np.asarray(low * (1 - part_a) + high * part_a)
