"""Up to n samples, not always n: slow answers in waves, until the leading one is settled (SPEC 5.12)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from odar.agents.team import Team
from odar.policy.stopping import Stopping
from odar.types import Candidate

PROCEDURE = 2
"""Goes up when the same settings begin to take other samples, so that recorded ones are not mixed.

2: the first look is after the whole first wave.
"""


@dataclass(frozen=True, slots=True)
class Waves:
    """How the Hard path samples.

    Args:
        stopping: when the vote is settled, and how large the first wave is.
        votes: a number for every candidate that votes; equal answers share it.
    """

    stopping: Stopping
    votes: Callable[[Sequence[Candidate]], list[int]]

    async def sample(self, team: Team, samples: int) -> list[Candidate]:
        """At most so many answers of the slow agent."""
        candidates: list[Candidate] = []
        asked = 0
        while asked < samples and not self._settled(candidates, samples=samples):
            size = samples - asked if asked else self.stopping.first_size(samples)
            # The first look is after the whole first wave: stopping at two equal answers lost two points of
            # accuracy on recorded samples (docs/lab-notes.md).
            enough = partial(self._settled, before=candidates, samples=samples) if asked else None
            wave = await team.solve(size, first=asked, enough=enough)
            candidates = candidates + wave
            asked += size
            if not wave:
                break  # the agent is down or a limit is reached; asking again would only repeat it
        return candidates

    def _settled(self, new: Sequence[Candidate], *, before: Sequence[Candidate] = (), samples: int) -> bool:
        found = (*before, *new)
        return self.stopping.settled(self.votes(found), samples - len(found))
