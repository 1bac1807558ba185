"""Early stopping of slow samples, once no other answer is likely to overtake the leader (SPEC 5.12).

A sample supports an answer to the degree s that the two are similar (SPEC 5.15), and a rival counts to the degree
1 − s that it differs from the leader. For answers that are equal (s = 1) or not (s = 0), these are votes.
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
    """Return P(p₁ > p₂) for two answers with these numbers of votes, under a uniform prior.

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
    """The stopping rule of the Hard path: a first wave, then the rest unless the vote is settled.

    Args:
        confidence: stop when the leader is ahead with this probability; 1 stops only when the remaining samples
            cannot change the leader; None takes every sample in one wave.
        first_wave: size of the first wave.
    """

    confidence: float | None
    first_wave: int = 3

    def is_settled(self, votes: Array, remaining: int) -> bool:
        """Return whether (n, n) similarities settle the vote with this many samples still to come."""
        return bool(self.are_settled(votes[None], np.array([remaining]))[0])

    def first_size(self, samples: int) -> int:
        """Return the size of the first wave out of `samples` in all."""
        return samples if self.confidence is None else min(self.first_wave, samples)

    def are_settled(self, s: Array, remaining: Ints) -> Bools:
        """Return whether (N, M, M) similarities settle the votes of N questions; a row of zeros is no vote."""
        if not s.shape[1] or self.confidence is None:
            return np.zeros(len(s), dtype=bool)
        support = s.sum(axis=2)
        rival = ((1 - s) * support[:, None, :]).max(axis=2)
        certain = support > rival + remaining[:, None] + TIE
        likely = _interpolate_lead(support, rival) >= self.confidence - TIE
        return np.asarray(((support > 0) & (certain | likely)).any(axis=1))


def _interpolate_lead(leader: Array, runner_up: Array) -> Array:
    """Return `probability_of_lead` of fractional votes, by linear interpolation between whole ones."""
    counts = range(leader.shape[1] + 2)
    table = np.array([[probability_of_lead(a, b) for b in counts] for a in counts])
    low_a, low_b = np.floor(leader + TIE).astype(int), np.floor(runner_up + TIE).astype(int)
    part_a, part_b = np.maximum(leader - low_a, 0.0), np.maximum(runner_up - low_b, 0.0)
    low, high = (table[a, low_b] * (1 - part_b) + table[a, low_b + 1] * part_b for a in (low_a, low_a + 1))
    return np.asarray(low * (1 - part_a) + high * part_a)
