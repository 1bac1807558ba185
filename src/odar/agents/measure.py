"""Measurements of candidates: free energies (SPEC 5.1-5.5), and opinions for the belief (SPEC 9.3).

Both compare an answer with the same model's other answers: energies by μ and σ, signals by ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from odar.agents.team import Team
from odar.calibration_file import Source
from odar.policy.belief import Agent, Opinion
from odar.policy.energy import measure_energy
from odar.policy.equivalence import group_candidates
from odar.policy.signals import RANKED, AnswerKind, AnswerSignals, QuantileTables, answer_signals, shipped_tables
from odar.served.alignment import ServedAlignment
from odar.types import Candidate, Stage, State, Step


@dataclass(frozen=True, slots=True)
class Measurements:
    """Measures candidates, and counts what was served.

    Args:
        varentropy_weight: λ in F = E + λ·V.
        alignment: μ, σ and quantiles by source.
    """

    varentropy_weight: float
    alignment: ServedAlignment

    def state_after(self, state: State, stage: Stage, new: Sequence[Candidate], team: Team) -> State:
        """The state after a stage, with its candidates measured; silent agents are not asked again."""
        measured: list[Candidate] = []
        opinions = list(state.opinions)
        for candidate in new:
            source = self._source(candidate, team)
            energy = candidate.energy
            if energy is None:
                known = None if source is None else self.alignment.find(source)
                energy = measure_energy(candidate.tokens, self.varentropy_weight, known)
            measured.append(replace(candidate, stage=len(state.stages), energy=energy))
            if not team.plain:
                agent = team.believed[candidate.agent].on(state.plan.kind)
                table = shipped_tables() if source is None else self.alignment.tables(source)
                opinions.append(opinion_of(candidate, answer_signals(candidate), table, agent))
        candidates = (*state.candidates, *measured)
        return replace(
            state,
            stages=(*state.stages, stage),
            candidates=candidates,
            failed=state.failed | (stage.agents - {each.agent for each in new}),
            calls_left=team.ledger.calls_left(),
            usd_left=team.ledger.usd_left(),
            opinions=grouped(opinions, group_candidates(candidates)) if opinions else (),
        )

    def count_served(self, candidates: Iterable[Candidate], team: Team) -> None:
        """Count the energies and signals of served candidates, except for models that are not in the settings."""
        if team.plain and any(card.name not in team.settings.models for card in team.cards.values()):
            return
        for candidate in candidates:
            source = self._source(candidate, team)
            if source is None:
                continue
            if candidate.energy is not None:
                self.alignment.count(source, candidate.energy.free_energy)
            if not team.plain:
                self.alignment.count_signals(source, answer_signals(candidate))

    def _source(self, candidate: Candidate, team: Team) -> Source | None:
        """The source of a candidate with this query's sampling; None if the server sets part of it."""
        used = team.request_template(candidate.agent).sampling
        if used.temperature is None or used.top_p is None or used.max_tokens is None:
            return None
        md5 = team.prompts[candidate.step].md5
        return Source(candidate.model, md5, used.temperature, used.top_p, used.max_tokens, self.varentropy_weight)


def size_of(candidates: Iterable[Candidate]) -> int:
    """About how many bytes must be read to measure or to write these candidates."""
    return sum(len(candidate.text) + 100 * len(candidate.tokens) for candidate in candidates)


def opinion_of(candidate: Candidate, seen: AnswerSignals, tables: QuantileTables, agent: Agent) -> Opinion:
    """What the belief sees of one candidate alone: its group is 0, or −1 if it has no answer."""
    ranks = {name: tables.rank(seen.kind, name, getattr(seen, name)) for name in RANKED}
    direct = seen.kind is AnswerKind.DIRECT and ranks["answer_logprob"] is not None
    return Opinion(
        agent=agent,
        group=0 if seen.finished else -1,
        stated=seen.stated,
        saw_proposal=candidate.step is Step.VERIFY,
        length=ranks["length"],
        logprob=ranks["answer_logprob" if direct else "mean_logprob"],
        direct=direct,
    )


def grouped(own: Iterable[Opinion], groups: Iterable[int]) -> tuple[Opinion, ...]:
    """Opinions with the groups of equal answers; without an answer the group stays −1."""
    return tuple(
        opinion if opinion.group in (-1, group) else replace(opinion, group=group)
        for opinion, group in zip(own, groups, strict=True)
    )
