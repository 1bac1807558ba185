"""Measurements of candidates: free energies (SPEC 5.1-5.5), and opinions for the belief (SPEC 9.3).

Both compare an answer with the same model's other answers: energies by μ and σ, signals by ranks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from odar.agents.team import Team
from odar.calibration_file import Source
from odar.policy.belief import Opinion, RatedAgent
from odar.policy.energy import measure_energy
from odar.policy.equivalence import group_candidates
from odar.policy.signals import RANKED, AnswerKind, AnswerSignals, QuantileTables, answer_signals, shipped_tables
from odar.served.alignment import ServedAlignment
from odar.types import Candidate, Stage, State, Step


def state_after(
    state: State, stage: Stage, new: Iterable[Candidate], team: Team, alignment: ServedAlignment
) -> State:
    """The state after a stage, with its new candidates measured; silent agents are not asked again."""
    candidates = list(state.candidates)
    opinions = list(state.opinions)
    answered = set()
    for candidate in new:
        answered.add(candidate.agent)
        source = _source(candidate, team)
        known = None if source is None else alignment.find(source)
        energy = measure_energy(candidate.tokens, team.settings.fusion.varentropy_weight, known)
        candidates.append(replace(candidate, stage=len(state.stages), energy=energy))
        if not team.plain:
            agent = team.rated[candidate.agent].on(state.plan.kind)
            tables = shipped_tables() if source is None else alignment.tables(source)
            opinions.append(opinion_of(candidate, answer_signals(candidate), tables, agent))
    return replace(
        state,
        stages=(*state.stages, stage),
        candidates=tuple(candidates),
        failed=state.failed | (stage.agents - answered),
        calls_left=team.ledger.calls_left(),
        usd_left=team.ledger.usd_left(),
        opinions=with_groups(opinions, group_candidates(candidates)) if opinions else (),
    )


def count_served(candidates: Iterable[Candidate], team: Team, alignment: ServedAlignment) -> None:
    """Count the energies and signals of served candidates, except for models that are not in the settings."""
    if team.plain and any(card.name not in team.settings.models for card in team.cards.values()):
        return
    for candidate in candidates:
        source = _source(candidate, team)
        if source is None:
            continue
        if candidate.energy is not None:
            alignment.count(source, candidate.energy.free_energy)
        if not team.plain:
            alignment.count_signals(source, answer_signals(candidate))


def _source(candidate: Candidate, team: Team) -> Source | None:
    """The source of a candidate with this query's sampling; None if the server sets part of it."""
    used = team.request_template(candidate.agent).sampling
    if used.temperature is None or used.top_p is None or used.max_tokens is None:
        return None
    md5 = team.prompts[candidate.step].md5
    weight = team.settings.fusion.varentropy_weight
    return Source(candidate.model, md5, used.temperature, used.top_p, used.max_tokens, weight)


def size_of(candidates: Iterable[Candidate]) -> int:
    """About how many bytes must be read to measure or to write these candidates."""
    return sum(len(candidate.text) + 100 * len(candidate.tokens) for candidate in candidates)


def opinion_of(candidate: Candidate, seen: AnswerSignals, tables: QuantileTables, agent: RatedAgent) -> Opinion:
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


def with_groups(own: Iterable[Opinion], groups: Iterable[int]) -> tuple[Opinion, ...]:
    """Opinions with the groups of equal answers; without an answer the group stays −1."""
    return tuple(
        opinion if opinion.group in (-1, group) else replace(opinion, group=group)
        for opinion, group in zip(own, groups, strict=True)
    )
