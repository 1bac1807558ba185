"""What is fitted to a user's agents: statistics of each source, skills, and the weights of the belief (SPEC 9.3).

Fits start from the shipped values and stay near them, because a user has a few hundred items; the pull is that of a
normal prior with the given deviation for each weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from odar.calibration_file import Calibration, Source, Statistics
from odar.lab.replay.table import ReplayTable
from odar.policy.arrays import Array
from odar.policy.belief import (
    PROBABILITIES,
    SKILL_RANGE,
    Belief,
    Evidence,
    Opinion,
    Posterior,
    RatedAgent,
    chance_level,
    logit,
    sigmoid,
    without_guesses,
)
from odar.served.agreement import gauss_newton
from odar.types import SLOW, Ask, Stage

MIN_BELIEF = 100
"""Minimum number of items for a fit of the belief; with fewer, only statistics are measured."""
SKILL_ITEMS = 12
"""Items that the skill of an agent, as known before, counts as."""
KIND_ITEMS = 12
"""Items that the skill of an agent on all questions counts as, for its skill on one kind."""
LABEL_SKILL_DEVIATION = 0.5
"""Deviation of the logit of a skill where there are labels."""
LABEL_DEVIATIONS = {
    "hard": 0.8, "long_hard": 0.4, "sure_easy": 0.4, "long": 0.3, "sure": 0.3,
    "p_offset": 0.2, "q_offset": 0.2,
}  # fmt: skip
"""How far the weights of one user's agents are from the shipped ones, as deviations over recorded triples."""
OBSERVATIONS = 2.0
"""What the states of one question count together: p and q of one question go wrong together."""


def fit_calibration(table: ReplayTable, *, belief: bool) -> Calibration:
    """Fit statistics and skills to the items of a table, and with `belief` its weights and the skills by kind.

    The calibration of the table must be empty, so that its agents have the skills that are known without items.
    """
    statistics = fit_statistics(table)
    if not belief:
        return Calibration(statistics)
    answers = answers_of(table.replaced(calibration=Calibration(statistics)))
    weights, skills = fit_with_labels(Belief.load(), [answers])
    for agent, skill in skills.items():
        by_kind = fit_kinds(table, replace(table.agents[agent], skill=skill), weights)
        source = table.source(agent)
        statistics[source] = replace(statistics[source], accuracy=round(skill, 4), accuracy_by_kind=by_kind)
    return Calibration(statistics, belief={name: round(weights.weights[name], 4) for name in LABEL_DEVIATIONS})


def fit_statistics(table: ReplayTable) -> dict[Source, Statistics]:
    """Statistics of every source; the accuracies of agents are shrunk towards what was known before."""
    found = table.fitted_statistics()
    items = len(table)
    guess = float(np.mean(chance_level(table.evidence_after()[0].plausible)))
    for name, agent in table.agents.items():
        source = table.source(name)
        if (known := found.get(source)) is not None and known.accuracy is not None:
            skill = float(without_guesses(known.accuracy, guess, known.unanswered))
            skill = (items * skill + SKILL_ITEMS * agent.skill) / (items + SKILL_ITEMS)
            found[source] = replace(known, accuracy=round(skill, 4))
    return found


def fit_kinds(table: ReplayTable, agent: RatedAgent, belief: Belief) -> dict[str, float]:
    """The skill of an agent on each kind of question.

    With it the belief expects as many right answers, before any call, as the agent gave. What it expects without
    kinds counts as `KIND_ITEMS` items, so that a kind of few items stays near it.
    """
    kinds = np.array(table.kinds)
    scores = table.scores(agent.name)
    questions, _ = table.evidence_after()
    tried = np.linspace(*SKILL_RANGE, 49)
    found = {}
    for kind in sorted(set(table.kinds)):
        own = kinds == kind
        evidence = replace(questions, plausible=questions.plausible[own], difficulty=questions.difficulty[own])
        posterior = belief.posterior(evidence)
        expected = [float(posterior.q(replace(agent, skill=skill)).mean()) for skill in (agent.skill, *tried)]
        right = (scores[own].sum() + KIND_ITEMS * expected[0]) / (own.sum() + KIND_ITEMS)
        found[kind] = round(float(np.interp(right, expected[1:], tried)), 4)
    return found


def log_losses(table: ReplayTable) -> np.ndarray:
    """The mean log loss of the belief's p and q on each item, over the states of `answers_of`."""
    logits, right = answers_of(table).predictions(table.calibration.load_belief())
    losses = [np.logaddexp(0, x) - outcome * x for x, outcome in zip(logits, right, strict=True)]
    return np.asarray(np.mean(losses, axis=0))


def answers_of(table: ReplayTable) -> Answers:
    """What a belief is fitted to: one answer of every agent to each item, and a second of slow if there is one."""
    asked = [Stage((Ask(agent),)) for agent in table.agents]
    if table.samples(SLOW) > 1:
        asked.append(Stage((Ask(SLOW),)))
    evidence, right = table.evidence_after(asked)
    return Answers(evidence.opinions, list(right.T.astype(np.float64)), evidence.plausible, evidence.difficulty)


def without_prompts(calibration: Calibration) -> Calibration:
    """For answers to other prompts: energies and signals do not hold, accuracies are kept."""
    kept = {
        source: replace(each, mean=0.0, deviation=1.0, count=0, prompt_tokens=None, quantiles=None)
        for source, each in calibration.statistics.items()
    }
    return replace(calibration, statistics=kept)


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
        changed = [
            replace(o, agent=replace(o.agent, skill=skills[o.agent.name])) if o.agent.name in skills else o
            for o in self.opinions
        ]
        return replace(self, opinions=changed)

    def predictions(self, belief: Belief) -> tuple[list[Array], list[Array]]:
        """p and q of all states as logits, and what was right; each is an array over the questions."""
        size = len(self.right[0])
        logits = []
        right = []
        for asked, following in self.states():
            posterior = self.posterior(belief, asked)
            for j in following:
                logits.append(logit(np.broadcast_to(posterior.q(self.opinions[j].agent), size)))
                right.append(self.right[j])
            if asked:
                logits.append(logit(posterior.p))
                right.append(self.leader_right(posterior.leader, asked))
        return logits, right


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
    # everything that is fitted as one vector: weights, shares as logits, then skills as logits
    start = [logit(belief.weights[name]) if name in PROBABILITIES else belief.weights[name] for name in names]
    start += [logit(agent.skill) for agent in agents.values()]
    spread = [*deviations.values(), *([skill_deviation or 1.0] * len(agents))]

    def unpack(x: Array) -> tuple[Belief, dict[str, float]]:
        pairs = zip(names, x, strict=False)
        weights = {name: float(sigmoid(value)) if name in PROBABILITIES else float(value) for name, value in pairs}
        skills = {name: float(sigmoid(value)) for name, value in zip(agents, x[len(names) :], strict=True)}
        return replace(belief, weights={**belief.weights, **weights}), skills

    def predicted(x: Array) -> Array:
        tried, skills = unpack(x)
        logits = [each.with_skills(skills).predictions(tried)[0] for each in answers]
        return np.concatenate([column for columns in logits for column in columns])

    # what the predictions are compared with, and how much each counts
    right: list[Array] = []
    counts: list[Array] = []
    for each in answers:
        columns = each.predictions(belief)[1]
        right += columns
        counts += [np.full(len(column), observations / len(columns)) for column in columns]
    start_vector = np.array(start, float)
    return unpack(
        gauss_newton(predicted, start_vector, np.array(spread), np.concatenate(right), np.concatenate(counts))
    )


def fit_with_labels(belief: Belief, answers: Sequence[Answers]) -> tuple[Belief, dict[str, float]]:
    """A belief with a few weights fitted to a user's labels, near the given one, and the agents' skills."""
    return fit(belief, answers, LABEL_DEVIATIONS, skill_deviation=LABEL_SKILL_DEVIATION)
