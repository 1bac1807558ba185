"""Fit a belief to recorded answers: with labels, or only skills from how often agents agree (SPEC 9.3, 10.1).

All fits start from a belief and stay near it; the pull is that of a normal prior with the given deviation for
each weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from odar.policy.arrays import Array
from odar.policy.belief import (
    DENSITY,
    NODES,
    SHARES,
    SKILL_RANGE,
    Agent,
    Belief,
    Evidence,
    Opinion,
    Posterior,
    chance_level,
    logit,
    sigmoid,
)

COMMON_DEVIATION = 0.6
"""Deviation of the logits of skills that all agents share: a user's questions may be harder than expected."""
OWN_DEVIATION = 0.25
"""Deviation of the logit of each skill beyond that."""
LABEL_SKILL_DEVIATION = 0.5
"""Deviation of the logit of a skill where there are labels."""
LABEL_DEVIATIONS = {
    "hard": 0.8, "long_hard": 0.4, "sure_easy": 0.4, "long": 0.3, "sure": 0.3,
    "p_offset": 0.2, "q_offset": 0.2,
}  # fmt: skip
"""How far the weights of one user's agents are from the shipped ones, as deviations over recorded triples."""
OBSERVATIONS = 2.0
"""What the states of one question count together: p and q of one question go wrong together."""
STEPS = 8


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


def skills_from_agreement(
    belief: Belief,
    agents: Sequence[Agent],
    together: Mapping[tuple[int, int, int], tuple[float, float]],
) -> list[float]:
    """Skills that explain how often agents agree, without labels.

    Args:
        belief: gives how often agents of some skill agree.
        agents: with the skills to start from and to stay near.
        together: for two numbers of agents and a number of plausible answers, how many questions both answered, and
            on how many they agreed.
    """
    pairs = list(together)
    asked = np.array([together[pair][0] for pair in pairs], dtype=np.float64)
    agreed = np.array([together[pair][1] for pair in pairs], dtype=np.float64)
    start = logit(np.array([agent.skill for agent in agents]))

    def changed(x: Array) -> list[Agent]:
        """Skills differ from the expected ones by what is common to all agents, and by what is their own."""
        return [replace(a, skill=sigmoid(at + x[0] + own)) for a, at, own in zip(agents, start, x[1:], strict=True)]

    def predicted(x: Array) -> Array:
        known = changed(x)
        found: Array = logit(np.array([agreement(belief, known[i], known[j], many) for i, j, many in pairs]))
        return found

    share = agreed / np.maximum(asked, 1)
    deviation = np.array([COMMON_DEVIATION, *[OWN_DEVIATION] * len(agents)])
    found = _gauss_newton(predicted, np.zeros(len(deviation)), deviation, share, asked)
    low, high = SKILL_RANGE
    return [min(high, max(low, float(agent.skill))) for agent in changed(found)]


def agreement(belief: Belief, one: Agent, other: Agent, plausible: int) -> float:
    """The share of questions, of those that both answer, on which two agents are expected to agree."""
    spread = belief.weights["spread"]
    equal_if_wrong = 1 / (1 + belief.variety(plausible))
    guess = chance_level(plausible)
    both = 0.0
    total = 0.0
    eases = [-spread * node for node in NODES]
    first, second = (belief.chances(agent, eases, 0.0, guess) for agent in (one, other))
    for density, (answers, a), (also, b) in zip(DENSITY, first, second, strict=True):
        both += density * answers * also
        total += density * answers * also * (a * b + (1 - a) * (1 - b) * equal_if_wrong)
    repeat, _ = belief.repeats(other, [Opinion(one, 0)])
    return repeat + (1 - repeat) * total / both


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
    found = _gauss_newton(
        predicted, np.array(start, float), np.array(spread), np.concatenate(true), np.concatenate(weight)
    )
    return unpack(found)


def fit_with_labels(belief: Belief, answers: Sequence[Answers]) -> tuple[Belief, dict[str, float]]:
    """A belief with a few weights fitted to a user's labels, near the given one, and the agents' skills."""
    return fit(belief, answers, LABEL_DEVIATIONS, skill_deviation=LABEL_SKILL_DEVIATION)


def _gauss_newton(
    predicted: Callable[[Array], Array], start: Array, deviation: Array, true: Array, weight: Array
) -> Array:
    """The x with the least log loss of σ(predicted(x)), near `start`."""

    def loss(x: Array, logits: Array) -> float:
        misfit = weight * (np.logaddexp(0, logits) - true * logits)
        return float(misfit.sum() + 0.5 * (((x - start) / deviation) ** 2).sum())

    x = start
    logits = predicted(x)
    best = loss(x, logits)
    for _ in range(STEPS):
        nudges = np.eye(len(x)) * 1e-3
        slopes = np.column_stack([(predicted(x + nudge) - logits) / 1e-3 for nudge in nudges])  # (N, X)
        p = sigmoid(logits)
        gradient = slopes.T @ (weight * (true - p)) - (x - start) / deviation**2
        curvature = (slopes.T * (weight * p * (1 - p))) @ slopes + np.diag(1 / deviation**2)
        step = np.linalg.solve(curvature, gradient)
        for size in (1.0, 0.5, 0.25, 0.1, 0.03):
            moved = predicted(x + size * step)
            if (now := loss(x + size * step, moved)) < best:
                break
        else:
            break
        gained = best - now
        best = now
        x = x + size * step
        logits = moved
        if gained < 1e-6 * max(1.0, abs(best)):
            break
    return x
