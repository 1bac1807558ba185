"""Evidence of many items at once, as arrays: for fits, and so that a cascade judges all items together."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from odar.policy.arrays import Array
from odar.policy.belief import Evidence, Opinion, RatedAgent
from odar.policy.cascade import CascadePolicy
from odar.types import Plan, State


class KnownPosterior(NamedTuple):
    """The posterior of one state, taken from the arrays of many; it answers what a policy asks of a posterior."""

    leader: int
    p: float
    by_agent: Mapping[str, float]

    def q(self, agent: RatedAgent) -> float:
        return self.by_agent[agent.name]


@dataclass(frozen=True)
class ReplayCascade(CascadePolicy):
    """A cascade that judges every state of a table once, because the states are the same for all dials."""

    known: dict[Hashable, KnownPosterior] = field(default_factory=dict, repr=False, compare=False)
    """Posteriors by `_state_key`."""

    def prepare(self, states: Sequence[State]) -> None:
        """Judge all new states, those of the same shape at once."""
        groups: dict[Hashable, list[State]] = {}
        for state in states:
            if _state_key(state) not in self.known:
                # states that differ in which ranks are known cannot be judged in one array
                ranks = tuple((each.length is None, each.logprob is None) for each in state.opinions)
                groups.setdefault(ranks, []).append(state)
        for new in groups.values():
            evidence = stacked_evidence([each.plan for each in new], [each.opinions for each in new])
            posterior = self.belief.posterior(evidence)
            agents = {
                name: stacked_agent([agent.on(state.plan.kind) for state in new])
                for name, agent in self.agents.items()
            }
            columns = [posterior.leader, posterior.p, *map(posterior.q, agents.values())]
            rows = zip(*(np.broadcast_to(column, len(new)).tolist() for column in columns), strict=True)
            for state, (leader, p, *qs) in zip(new, rows, strict=True):
                self.known[_state_key(state)] = KnownPosterior(leader, p, dict(zip(agents, qs, strict=True)))

    def posterior(self, state: State) -> Any:
        return self.known.get(_state_key(state)) or super().posterior(state)


def _state_key(state: State) -> Hashable:
    """What the posterior of a state depends on; the table keeps its opinions, so that their id is unique."""
    plan = state.plan
    return id(state.opinions), plan.kind, plan.plausible, plan.estimate.difficulty


def stacked_evidence(plans: Sequence[Plan], opinions: Sequence[Sequence[Opinion]]) -> Evidence:
    return Evidence(
        tuple(_stacked(column) for column in zip(*opinions, strict=True)),
        plausible=np.array([plan.plausible for plan in plans]),
        difficulty=np.array([plan.estimate.difficulty for plan in plans]),
    )


def stacked_agent(agents: Sequence[RatedAgent]) -> RatedAgent:
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
