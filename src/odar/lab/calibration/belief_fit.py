"""Fit a belief to recorded answers with labels (SPEC 9.3).

A fit starts from a belief and stays near it; the pull is that of a normal prior with the given deviation for each
weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from odar.policy.arrays import Array
from odar.policy.belief import SHARES, Belief, Evidence, Opinion, Posterior, logit, sigmoid
from odar.served.agreement import gauss_newton

LABEL_SKILL_DEVIATION = 0.5
"""Deviation of the logit of a skill where there are labels."""
LABEL_DEVIATIONS = {
    "hard": 0.8, "long_hard": 0.4, "sure_easy": 0.4, "long": 0.3, "sure": 0.3,
    "p_offset": 0.2, "q_offset": 0.2,
}  # fmt: skip
"""How far the weights of one user's agents are from the shipped ones, as deviations over recorded triples."""
OBSERVATIONS = 2.0
"""What the states of one question count together: p and q of one question go wrong together."""


@dataclass(frozen=True)
class Answers:
    """What agents answered to many questions: opinions whose numbers are arrays, and whether each is right."""

    opinions: Sequence[Opinion]
    right: Sequence[Array]
    plausible: Any
    difficulty: Any
    prefixes_only: bool = False
    """Whether agents were asked in this order only."""

    def states(self) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Yield numbers of opinions, in order, and of the agents that can be asked next."""
        every = range(len(self.opinions))
        if self.prefixes_only:
            yield from ((tuple(every[:k]), tuple(every[k : k + 1])) for k in range(len(every) + 1))
            return
        for size in range(min(len(every), 3) + 1):
            for asked in combinations(every, size):
                yield asked, tuple(j for j in every if j not in asked)

    def posterior(self, belief: Belief, asked: Sequence[int]) -> Posterior:
        return belief.posterior(Evidence([self.opinions[j] for j in asked], self.plausible, self.difficulty))

    def leader_right(self, leader: Array, asked: Sequence[int]) -> Array:
        """1 where the leading answer of a question is right, else 0."""
        found = np.zeros(len(self.right[0]))
        for j in asked:
            found = np.where((self.opinions[j].group == leader) & (leader >= 0), self.right[j], found)
        return found

    def with_skills(self, skills: Mapping[str, float]) -> Answers:
        """The same answers, of agents with other skills, by name."""
        named = [
            replace(o, agent=replace(o.agent, skill=skills[o.agent.name])) if o.agent.name in skills else o
            for o in self.opinions
        ]
        return replace(self, opinions=named)

    def predictions(self, belief: Belief) -> tuple[list[Array], list[Array]]:
        """p and q of all states as logits, and what came true."""
        size = len(self.right[0])
        found = []
        true = []
        for asked, following in self.states():
            posterior = self.posterior(belief, asked)
            for j in following:
                found.append(logit(np.broadcast_to(posterior.q(self.opinions[j].agent), size)))
                true.append(self.right[j])
            if asked:
                found.append(logit(posterior.p))
                true.append(self.leader_right(posterior.leader, asked))
        return found, true


def fit(
    belief: Belief,
    answers: Sequence[Answers],
    deviations: Mapping[str, float],
    observations: float = OBSERVATIONS,
    skill_deviation: float | None = None,
) -> tuple[Belief, dict[str, float]]:
    """A belief with those weights fitted that have a deviation, and the skills of all agents by name.

    Skills are fitted if they have a deviation too.
    """
    agents = {o.agent.name: o.agent for each in answers for o in each.opinions} if skill_deviation else {}
    names = list(deviations)
    start = [logit(belief.weights[n]) if n in SHARES else belief.weights[n] for n in names]
    start += [logit(agent.skill) for agent in agents.values()]
    spread = [*deviations.values(), *([skill_deviation or 1.0] * len(agents))]

    def unpack(x: Array) -> tuple[Belief, dict[str, float]]:
        weights = {n: float(sigmoid(v)) if n in SHARES else float(v) for n, v in zip(names, x, strict=False)}
        skills = {name: float(sigmoid(v)) for name, v in zip(agents, x[len(names) :], strict=True)}
        return replace(belief, weights={**belief.weights, **weights}), skills

    def predicted(x: Array) -> Array:
        tried, skills = unpack(x)
        found = [each.with_skills(skills).predictions(tried)[0] for each in answers]
        return np.concatenate([column for columns in found for column in columns])

    true: list[Array] = []
    weight: list[Array] = []
    for each in answers:
        columns = each.predictions(belief)[1]
        true += columns
        weight += [np.full(len(column), observations / len(columns)) for column in columns]
    found = gauss_newton(
        predicted, np.array(start, float), np.array(spread), np.concatenate(true), np.concatenate(weight)
    )
    return unpack(found)


def fit_with_labels(belief: Belief, answers: Sequence[Answers]) -> tuple[Belief, dict[str, float]]:
    """A belief with a few weights fitted to a user's labels, near the given one, and the agents' skills."""
    return fit(belief, answers, LABEL_DEVIATIONS, skill_deviation=LABEL_SKILL_DEVIATION)
