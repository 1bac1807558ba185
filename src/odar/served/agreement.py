"""How often agents agree on observed questions, and the skills that follow without labels (SPEC 9.3, 10.1).

Only questions that every cheap agent and slow answered are counted, chosen at random: where slow was asked out of
doubt, agents agree less often than usual. For the questions of a key its own counts, and a few of every other key:
nobody's traffic decides about the questions of others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from odar.background import CURRENT_KEY
from odar.policy.arrays import Array
from odar.policy.belief import QUADRATURE, SKILL_RANGE, Belief, Opinion, RatedAgent, chance_level, logit, sigmoid
from odar.served.counts import SharedCounts, add_count

MIN_QUESTIONS = 30
"""Observed questions from which skills are corrected; a key with as many has skills of its own."""
OTHERS_QUESTIONS = 2
"""Maximum number of questions of each other key that count."""
MAX_QUESTIONS = 2000
"""Number of questions of a pair after which old ones count half, so that a change of the traffic shows."""
MAX_KEYS = 50
"""Maximum number of keys with skills of their own; those with most questions."""
_MANY = 20
"""Number of plausible answers from which more make no difference; 0 means many too."""
COMMON_DEVIATION = 0.6
"""Deviation of the logits of skills that all agents share: a user's questions may be harder than expected."""
OWN_DEVIATION = 0.25
"""Deviation of the logit of each skill beyond that."""
STEPS = 8
"""Maximum number of steps of a fit."""


class Pair(NamedTuple):
    """Two agents that answered questions of a key, each with its model, as in "fast gpt-4.1-nano"."""

    key: str
    one: str
    other: str
    plausible: int


class Agreement(msgspec.Struct, frozen=True):
    """Questions that both answered, and those on which they agreed."""

    questions: float = 0.0
    agreed: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.agreed <= self.questions:
            raise ValueError("a count is negative, or more agree than answered")

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(self.questions + other.questions, self.agreed + other.agreed)

    def scaled(self, factor: float) -> Agreement:
        return Agreement(self.questions * factor, self.agreed * factor)


class ServedAgreement(SharedCounts[Pair, Agreement]):
    """Counts of agreement, shared by all processes of a machine, and the agents' skills for each key.

    Args:
        agents: the agents with the skills to start from.
        models: the default model of each agent.
        belief: says how often agents of some skill agree; None: skills stay as they are, as after a calibration.
        file: the file of the counts; None keeps them in memory.
        timer: monotonic seconds, for the syncs.
    """

    FORMAT = "odar-agreement-2"
    ROWS = list[tuple[Pair, Agreement]]

    def __init__(
        self,
        agents: Mapping[str, RatedAgent],
        models: Mapping[str, str],
        belief: Belief | None,
        file: Path | None = None,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(file, timer)
        self._agents = agents
        self._labels = {f"{agent} {models[agent]}": i for i, agent in enumerate(agents)}
        self._belief = belief
        self._skills: dict[str | None, tuple[float, ...]] = {}
        """By key; None is for keys without skills of their own."""

    def count(self, groups: Mapping[str, int], plausible: int, key: str) -> None:
        """Count one question: the group of equal answers of each agent, by its label."""
        plausible = 0 if plausible >= _MANY else plausible
        with self._lock:
            for one, other in combinations(sorted(groups), 2):
                agreed = float(groups[one] == groups[other])
                add_count(self._unsaved, Pair(key, one, other, plausible), Agreement(1.0, agreed))
        self._sync_if_due()

    def skills(self) -> tuple[float, ...]:
        """The skills of all agents as traffic corrected them, for the key that asks; empty if it did not."""
        if self._belief is None:
            return ()
        self._sync_if_due()
        known = self._skills
        return known.get(CURRENT_KEY.get()) or known.get(None, ())

    def questions(self) -> dict[str, float]:
        total = self.read()
        with self._lock:
            return _questions_by_key(self._merge(total, self._unsaved))

    def _after_sync(self, total: Mapping[Pair, Agreement]) -> None:
        if self._belief is None:
            return
        known = {pair: count for pair, count in total.items() if {pair.one, pair.other} <= self._labels.keys()}
        by_key = _questions_by_key(known)
        # a key with enough questions: all of them, and a few of every other key
        scales = {key: min(1.0, OTHERS_QUESTIONS / questions) for key, questions in by_key.items()}
        own = [key for key, questions in by_key.items() if questions >= MIN_QUESTIONS][:MAX_KEYS]
        skills: dict[str | None, tuple[float, ...]] = {}
        skills |= {key: self._fitted_skills(self._belief, known, scales | {key: 1.0}) for key in own}
        # all other keys: a few questions of every key
        if sum(scales[key] * questions for key, questions in by_key.items()) >= MIN_QUESTIONS:
            skills[None] = self._fitted_skills(self._belief, known, scales)
        self._skills = skills

    def _fitted_skills(
        self, belief: Belief, counts: Mapping[Pair, Agreement], scales: Mapping[str, float]
    ) -> tuple[float, ...]:
        """The skills that explain these counts, of which those of each key are multiplied by its scale."""
        found: dict[tuple[int, int, int], Agreement] = {}
        for pair, count in counts.items():
            numbers = self._labels[pair.one], self._labels[pair.other], pair.plausible
            found[numbers] = found.get(numbers, Agreement()) + count.scaled(scales[pair.key])
        together = {numbers: (each.questions, each.agreed) for numbers, each in found.items()}
        fitted = skills_from_agreement(belief, list(self._agents.values()), together)
        return tuple(round(skill, 2) for skill in fitted)  # a policy for each hundredth

    def _prune(self, counts: dict[Pair, Agreement]) -> dict[Pair, Agreement]:
        keys = set(list(_questions_by_key(counts))[: 20 * MAX_KEYS])
        return {
            pair: count.scaled(0.5) if count.questions > MAX_QUESTIONS else count
            for pair, count in counts.items()
            if pair.key in keys
        }


def _questions_by_key(counts: Mapping[Pair, Agreement]) -> dict[str, float]:
    """The number of questions of each key, by its most frequent pair of agents; the largest first."""
    by_pair: dict[tuple[str, str, str], float] = {}
    for (key, one, other, _), count in counts.items():
        by_pair[key, one, other] = by_pair.get((key, one, other), 0.0) + count.questions
    largest: dict[str, float] = {}
    for (key, _, _), questions in by_pair.items():
        largest[key] = max(largest.get(key, 0.0), questions)
    return dict(sorted(largest.items(), key=lambda item: -item[1]))


def skills_from_agreement(
    belief: Belief, agents: Sequence[RatedAgent], together: Mapping[tuple[int, int, int], tuple[float, float]]
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

    def changed(x: Array) -> list[RatedAgent]:
        """Skills differ from the expected ones by what is common to all agents, and by what is their own."""
        return [replace(a, skill=sigmoid(at + x[0] + own)) for a, at, own in zip(agents, start, x[1:], strict=True)]

    def predicted(x: Array) -> Array:
        known = changed(x)
        found: Array = logit(np.array([agreement(belief, known[i], known[j], many) for i, j, many in pairs]))
        return found

    share = agreed / np.maximum(asked, 1)
    deviation = np.array([COMMON_DEVIATION, *[OWN_DEVIATION] * len(agents)])
    found = gauss_newton(predicted, np.zeros(len(deviation)), deviation, share, asked)
    low, high = SKILL_RANGE
    return [min(high, max(low, float(agent.skill))) for agent in changed(found)]


def agreement(belief: Belief, one: RatedAgent, other: RatedAgent, plausible: int) -> float:
    """The share of questions, of those that both answer, on which two agents are expected to agree."""
    spread = belief.weights["spread"]
    equal_if_wrong = 1 / (1 + belief.variety(plausible))
    guess = chance_level(plausible)
    both = 0.0
    total = 0.0
    eases = [-spread * node for node, _ in QUADRATURE]
    first, second = (belief.chances(agent, eases, 0.0, guess) for agent in (one, other))
    for (_, density), (answers, a), (also, b) in zip(QUADRATURE, first, second, strict=True):
        both += density * answers * also
        total += density * answers * also * (a * b + (1 - a) * (1 - b) * equal_if_wrong)
    repeat, _ = belief.repeats(other, [Opinion(one, 0)])
    return repeat + (1 - repeat) * total / both


def gauss_newton(
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
