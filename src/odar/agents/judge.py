"""Candidates in, verdict out: weighed, by a surrogate where they have no log-probs, chosen from, remembered."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from odar.agents.scales import Scales
from odar.agents.surrogate import Surrogate
from odar.agents.team import Failure, Team
from odar.errors import OdarError
from odar.observer import observed
from odar.policy.fusion import Fusion, eligible
from odar.types import Candidate, Role, Verdict


@dataclass(frozen=True, slots=True)
class Judge:
    """How an engine decides between candidates.

    Args:
        fusion: the rule.
        scales: measures them.
        surrogate: scores the texts of models without log-probs; None where nobody does.
    """

    fusion: Fusion
    scales: Scales
    surrogate: Surrogate | None = None

    @observed("fusion")
    async def decide(self, candidates: Sequence[Candidate], team: Team) -> tuple[list[Candidate], Verdict]:
        """The candidates with their energies, and which of them wins.

        A surrogate that fails leaves the decision to the next rung of the ladder, and the team with a failure.
        """
        weighed = [self.scales.weigh(candidate, team) for candidate in candidates]
        seen, able = list(weighed), eligible(weighed)
        if self.surrogate is not None and self.surrogate.needed([weighed[i] for i in able], team):
            try:
                scored = await self.surrogate.weigh([weighed[i] for i in able], team)
                for i, candidate in zip(able, scored, strict=True):
                    seen[i] = candidate
            except OdarError as error:
                team.failures.append(Failure(Role.SLOW, error, f"surrogate {self.surrogate.card.name}"))
        verdict = self.fusion.choose(seen)
        # A candidate keeps the tokens its own model reported, and has the energy that was decided by.
        weighed = [dataclasses.replace(own, energy=view.energy) for own, view in zip(weighed, seen, strict=True)]
        self.scales.observe(weighed, team)
        return weighed, verdict
