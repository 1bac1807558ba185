"""Evidence of many items at once, as arrays: for fits, and so that a belief judges all items together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from odar.policy.arrays import Array
from odar.policy.belief import Agent, Belief, Evidence, Opinion
from odar.types import Plan, State


class _KnownPosterior(NamedTuple):
    """The posterior of one state, taken from the arrays of many; it answers what a policy asks of a posterior."""

    leader: int
    p: float
    by_agent: Mapping[str, float]

    def q(self, agent: Agent) -> float:
        return self.by_agent[agent.name]


@dataclass(frozen=True)
class RememberingBelief(Belief):
    """A belief that judges every state of a table once, because the states are the same for all dials."""

    known: dict[Any, _KnownPosterior | None] = field(default_factory=dict, repr=False, compare=False)
    """Posteriors by `_memory_key`; None if two states share it."""

    def prepare(self, states: Sequence[State], agents: Mapping[str, Agent]) -> None:
        """Judge states in which the same agents were asked, all at once."""
        groups: dict[Any, list[State]] = {}
        for state in states:
            if _memory_key(state) not in self.known:
                groups.setdefault(_known_ranks(state.opinions), []).append(state)
        for new in groups.values():
            self._judge_all(new, agents)

    def _judge_all(self, new: Sequence[State], agents: Mapping[str, Agent]) -> None:
        """Judge states in all of which the same ranks are known, and remember the posteriors."""
        evidence = stacked_evidence([each.plan for each in new], [each.opinions for each in new])
        posterior = super().posterior(evidence)
        leaders = np.broadcast_to(posterior.leader, len(new)).tolist()
        chances = np.broadcast_to(posterior.p, len(new)).tolist()
        kinds = [state.plan.kind for state in new]
        by_agent = {
            name: np.broadcast_to(posterior.q(stacked_agent([agent.on(kind) for kind in kinds])), len(new)).tolist()
            for name, agent in agents.items()
        }
        for i, state in enumerate(new):
            q = {name: values[i] for name, values in by_agent.items()}
            found = _KnownPosterior(leaders[i], chances[i], q)
            key = _memory_key(state)  # questions of two kinds without an answer can share it: judged one by one
            self.known[key] = found if self.known.get(key, found) == found else None

    def posterior(self, evidence: Evidence) -> Any:
        """The posterior from memory, unless it is one of many drawn questions."""
        if isinstance(evidence.difficulty, np.ndarray):
            return super().posterior(evidence)
        key = (id(evidence.opinions), evidence.difficulty, evidence.plausible)
        return self.known.get(key) or super().posterior(evidence)


def _memory_key(state: State) -> tuple[int, float, int]:
    """What the posterior of a state depends on; the table keeps its opinions, so that their id is unique."""
    return id(state.opinions), state.plan.estimate.difficulty, state.plan.plausible or 0


def _known_ranks(opinions: Sequence[Opinion]) -> tuple[tuple[bool, ...], ...]:
    """Which ranks each opinion has; states that differ in this cannot be judged in one array."""
    return tuple(
        tuple(getattr(opinion, name) is not None for name in ("length", "logprob")) for opinion in opinions
    )


def stacked_evidence(plans: Sequence[Plan], opinions: Sequence[Sequence[Opinion]]) -> Evidence:
    return Evidence(
        tuple(_stacked(column) for column in zip(*opinions, strict=True)),
        plausible=np.array([plan.plausible or 0 for plan in plans]),
        difficulty=np.array([plan.estimate.difficulty for plan in plans]),
    )


def stacked_agent(agents: Sequence[Agent]) -> Agent:
    """One agent on items of several kinds: its skill is an array, or a number if it is the same on all."""
    skills = [agent.skill for agent in agents]
    return replace(agents[0], skill=skills[0] if len(set(skills)) == 1 else np.array(skills), by_kind=())


def _stacked(opinions: Sequence[Opinion]) -> Opinion:
    """The opinions on one candidate of each item, as one opinion of arrays.

    A rank that is unknown for all is None; one that is unknown for some is 0.5 for them, which says nothing.
    """

    def ranks(name: str) -> Array | None:
        values = [getattr(opinion, name) for opinion in opinions]
        if all(value is None for value in values):
            return None
        return np.array([0.5 if value is None else value for value in values])

    return replace(
        opinions[0],
        agent=stacked_agent([opinion.agent for opinion in opinions]),
        group=np.array([opinion.group for opinion in opinions]),
        stated=np.array([opinion.stated for opinion in opinions]),
        length=ranks("length"),
        logprob=ranks("logprob"),
        direct=np.array([opinion.direct for opinion in opinions]),
    )
