"""When to stop sampling: once the leading answer cannot plausibly be overtaken (SPEC 5.12).

`Stopping.settled` decides about one question while its samples arrive, `Stopping.simulate` about recorded samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from odar.policy.rules import Bools, Ints


def lead_is_real(leader: int, runner_up: int) -> float:
    """P(p₁ > p₂) for two answers with so many votes each, under a uniform prior.

    Given that a sample gives one of the two, the leader's share is Beta(v₁ + 1, v₂ + 1), and the probability that
    it exceeds one half is a binomial sum.

    >>> lead_is_real(3, 0), lead_is_real(2, 1), lead_is_real(0, 0)
    (0.9375, 0.6875, 0.5)
    """
    trials = leader + runner_up + 1
    ahead: int = sum(comb(trials, k) for k in range(leader + 1))
    return ahead / (1 << trials)


@dataclass(frozen=True, slots=True)
class SamplesTaken:
    """What the Hard path does with recorded samples, as arrays over questions."""

    read: Bools
    """(N, M) samples that take part in the choice."""
    asked: Ints
    """(N,) samples that were asked for and paid: a wave is paid whole, even if its first samples settle it."""
    waves: Ints
    """(N,) requests, if one request gives several samples."""


@dataclass(frozen=True, slots=True)
class Stopping:
    """How the Hard path samples: a first wave, then the rest unless the vote is settled.

    Args:
        confidence: stop when the leader is ahead for good with this probability; 1 stops only when no outcome of
            the remaining samples can change the leader; None always takes every sample, all at once.
        first_wave: size of the first wave.
    """

    confidence: float | None
    first_wave: int = 3

    def settled(self, groups: Sequence[int], remaining: int) -> bool:
        """Return whether these votes, as group numbers, settle the answer with so many samples still to come.

        >>> Stopping(0.8).settled([0, 0, 0], remaining=2), Stopping(0.8).settled([0, 0, 1], remaining=2)
        (True, False)
        """
        if self.confidence is None:
            return False
        leader, runner_up = (*(count for _, count in Counter(groups).most_common(2)), 0, 0)[:2]
        if leader > runner_up + remaining:
            return True
        return bool(leader) and lead_is_real(leader, runner_up) >= self.confidence

    def first_size(self, samples: int) -> int:
        """Return the size of the first wave, of so many samples in all."""
        return samples if self.confidence is None else min(self.first_wave, samples)

    def simulate(self, present: Bools, samples: int, votes: Callable[[Bools], Ints]) -> SamplesTaken:
        """Take recorded samples in their order until the vote is settled: what `agents` does, as arrays.

        Args:
            present: (N, M) the samples that were recorded, in the order in which they are taken; a sample that is
                absent was asked for and failed.
            samples: how many are taken at most.
            votes: the group number of each vote if these samples have been read; −1 for what does not vote.
        """
        count, width = present.shape
        first = self.first_size(samples)
        column = np.arange(width)
        read = present & (column < first)
        if first == samples:
            return SamplesTaken(read, np.full(count, samples), np.ones(count, dtype=np.int64))
        # the agent that gave nothing in the first wave is not asked again
        open_ = ~self._settled(votes(read), samples - read.sum(axis=1)) & read.any(axis=1)
        waves, asked = np.where(open_, 2, 1), np.where(open_, samples, first)
        for each in range(first, min(samples, width)):
            read = read | (present & open_[:, None] & (column == each))
            open_ &= ~(self._settled(votes(read), samples - read.sum(axis=1)) & present[:, each])
        return SamplesTaken(read, asked, waves)

    def _settled(self, votes: Ints, remaining: Ints) -> Bools:
        """`settled` for every row, by a table of all outcomes: samples are few."""
        sizes = ((votes[:, :, None] == votes[:, None, :]) & (votes >= 0)[:, None, :]).sum(axis=2)
        sizes = np.where(votes >= 0, sizes, 0)
        leader = sizes.max(axis=1)
        leads = np.take_along_axis(votes, sizes.argmax(axis=1)[:, None], axis=1)
        runner_up = np.where(votes == leads, 0, sizes).max(axis=1)
        most, left = range(votes.shape[1] + 1), range(int(remaining.max(initial=0)) + 1)
        table = np.array([[[self.settled([0] * a + [1] * b, c) for c in left] for b in most] for a in most])
        return np.asarray(table[leader, runner_up, remaining])
