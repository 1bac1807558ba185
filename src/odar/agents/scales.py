"""Candidates on the scales: their free energy, aligned by what is known of where they come from (SPEC 5.1-5.5)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from odar.agents.team import Team
from odar.policy.alignment import Source, Statistics
from odar.policy.energy import measure
from odar.store.alignment import ServedAlignment
from odar.types import Candidate, Step


@dataclass(frozen=True, slots=True)
class Scales:
    """Measures candidates, and remembers what it measured.

    Args:
        varentropy_weight: λ in F = E + λ·V.
        alignment: μ and σ by source.
    """

    varentropy_weight: float
    alignment: ServedAlignment

    def weigh(self, candidate: Candidate, team: Team, scorer: str = "") -> Candidate:
        """The candidate with its energy; `scorer` is the surrogate where its tokens are that one's."""
        source = self._source(candidate.step, team, scorer)
        known = None if source is None else self.alignment.find(source)
        energy = measure(candidate.tokens, self.varentropy_weight, known.alignment if known else None)
        if energy is not None and (known or scorer):
            energy = dataclasses.replace(energy, origin=known.origin if known else "", scorer=scorer)
        return dataclasses.replace(candidate, energy=energy)

    def observe(self, candidates: Iterable[Candidate], team: Team) -> None:
        """Count the energies of what is about to be served; not of a name that the client made up."""
        if team.plain and any(card.name not in team.settings.models for card in team.cards.values()):
            return
        for candidate in candidates:
            energy = candidate.energy
            source = None if energy is None else self._source(candidate.step, team, energy.scorer)
            if energy is not None and source is not None:
                self.alignment.observe(source, energy.free_energy)

    def known(self, step: Step, team: Team) -> Statistics | None:
        """What calibration found out about a step's answers on the terms of this query."""
        source = self._source(step, team)
        return None if source is None else self.alignment.calibrated.find(source)

    def _source(self, step: Step, team: Team, scorer: str = "") -> Source | None:
        """Where a step's answers come from on the terms of this query; None where the server sets some of them."""
        terms = team.terms(step.role).sampling
        if terms.temperature is None or terms.top_p is None or terms.max_tokens is None:
            return None
        model, md5 = team.cards[step.role].name, team.prompts[step].md5
        return Source(model, md5, terms.temperature, terms.top_p, terms.max_tokens, self.varentropy_weight, scorer)
