"""Measurements of candidates: free energies (SPEC 5.1-5.5), and opinions for the belief (SPEC 9.3).

Both compare an answer with the same model's other answers: energies by μ and σ, signals by ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from odar.agents.team import Team
from odar.policy.alignment import Source
from odar.policy.belief import Agent, Opinion
from odar.policy.energy import measure_energy
from odar.policy.fusion import Fusion
from odar.policy.signals import RANKED, AnswerSignals, QuantileTables, answer_signals, shipped_tables
from odar.store.alignment import ServedAlignment
from odar.types import Candidate, Plan, Step


@dataclass(frozen=True, slots=True)
class Measurements:
    """Measures candidates, and counts what was served.

    Args:
        varentropy_weight: λ in F = E + λ·V.
        alignment: μ, σ and quantiles by source.
        fusion: groups equal answers.
    """

    varentropy_weight: float
    alignment: ServedAlignment
    fusion: Fusion

    def energies(self, candidates: Iterable[Candidate], team: Team) -> list[Candidate]:
        """Return the candidates with their free energies."""
        return [self._with_energy(candidate, team) for candidate in candidates]

    def opinions(
        self, candidates: Sequence[Candidate], agents: Mapping[str, Agent], team: Team
    ) -> tuple[Opinion, ...]:
        """Return what the belief sees of each candidate, given skill and family of each agent."""
        signals = [answer_signals(candidate) for candidate in candidates]
        tables = [self._tables(candidate, team) for candidate in candidates]
        return opinions(candidates, signals, tables, agents, self.fusion)

    def observe(self, candidates: Iterable[Candidate], plan: Plan, team: Team) -> None:
        """Count the energies and signals of served candidates, except for models that are not in the settings."""
        if team.plain and any(card.name not in team.settings.models for card in team.cards.values()):
            return
        for candidate in candidates:
            source = self._source(candidate.step, team, candidate.agent, candidate.model)
            if source is None:
                continue
            if candidate.energy is not None:
                self.alignment.observe(source, candidate.energy.free_energy)
            if not team.plain:
                self.alignment.observe_signals(source, answer_signals(candidate))

    def _with_energy(self, candidate: Candidate, team: Team) -> Candidate:
        if candidate.energy is not None:
            return candidate
        source = self._source(candidate.step, team, candidate.agent, candidate.model)
        known = None if source is None else self.alignment.find(source)
        energy = measure_energy(candidate.tokens, self.varentropy_weight, known)
        return candidate if energy is None else replace(candidate, energy=energy)

    def _tables(self, candidate: Candidate, team: Team) -> QuantileTables | None:
        source = self._source(candidate.step, team, candidate.agent, candidate.model)
        return None if source is None else self.alignment.tables(source)

    def _source(self, step: Step, team: Team, agent: str, model: str) -> Source | None:
        """Return the source of a candidate with this query's sampling; None if the server sets part of it."""
        used = team.request_template(agent).sampling
        if used.temperature is None or used.top_p is None or used.max_tokens is None:
            return None
        md5 = team.prompts[step].md5
        return Source(model, md5, used.temperature, used.top_p, used.max_tokens, self.varentropy_weight)


def size_of(candidates: Iterable[Candidate]) -> int:
    """Return about how many bytes must be read to measure or to write these candidates."""
    return sum(len(candidate.text) + 100 * len(candidate.tokens) for candidate in candidates)


def opinions(
    candidates: Sequence[Candidate],
    signals: Sequence[AnswerSignals],
    tables: Sequence[QuantileTables | None],
    agents: Mapping[str, Agent],
    fusion: Fusion,
) -> tuple[Opinion, ...]:
    """Return what the belief sees of candidates, given their signals and the quantiles of their sources."""
    own = [opinion_of(each, agents[each[0].agent]) for each in zip(candidates, signals, tables, strict=True)]
    return grouped(own, fusion.groups(candidates))


def opinion_of(answer: tuple[Candidate, AnswerSignals, QuantileTables | None], agent: Agent) -> Opinion:
    """Return what the belief sees of one candidate alone: its group is 0, or −1 if it has no answer."""
    candidate, seen, table = answer
    known = shipped_tables() if table is None else table.with_fallback(shipped_tables())
    ranks = {name: known.rank_one(seen.kind, name, getattr(seen, name)) for name in RANKED}
    return Opinion(
        agent=agent,
        group=0 if seen.finished else -1,
        stated=seen.stated,
        saw_proposal=candidate.step is Step.VERIFY,
        length=ranks["length"],
        mean_logprob=ranks["mean_logprob"],
        answer_logprob=ranks["answer_logprob"],
    )


def grouped(own: Iterable[Opinion], groups: Iterable[int]) -> tuple[Opinion, ...]:
    """Return opinions with the groups of equal answers; without an answer the group stays −1."""
    return tuple(
        opinion if opinion.group < 0 else replace(opinion, group=group)
        for opinion, group in zip(own, groups, strict=True)
    )
