"""When to stop sampling: once the leading answer cannot plausibly be overtaken (SPEC 5.12)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb


@dataclass(frozen=True, slots=True)
class Stopping:
    """Stop when the leader is ahead for good with this confidence; 1 stops only when arithmetic forbids a change.

    >>> Stopping(0.8).decided([0, 0, 0], remaining=2)
    True
    >>> Stopping(0.8).decided([0, 0, 1], remaining=2)
    False
    """

    confidence: float

    def decided(self, groups: Sequence[int], remaining: int) -> bool:
        """Whether the answers so far, as group numbers, settle the vote with so many samples still to come."""
        leader, runner_up = _top_two(groups)
        if leader > runner_up + remaining:
            return True
        return bool(leader) and lead_is_real(leader, runner_up) >= self.confidence


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


def _top_two(groups: Sequence[int]) -> tuple[int, int]:
    counts = [count for _, count in Counter(groups).most_common(2)]
    return (*counts, 0, 0)[0], (*counts, 0, 0)[1]
