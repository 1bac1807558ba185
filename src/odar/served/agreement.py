"""How often agents agree on observed questions, and the skills that follow without labels (SPEC 9.3, 10.1).

Only questions that every cheap agent and slow answered are counted, chosen at random: where slow was asked out of
doubt, agents agree less often than usual. For the questions of a key its own counts, and a few of every other key:
nobody's traffic decides about the questions of others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import msgspec

from odar.background import CURRENT_KEY
from odar.policy.belief import Agent, Belief
from odar.served.counts import SharedCounts
from odar.served.skills import skills_from_agreement

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

    def plus(self, other: Agreement, scale: float = 1.0) -> Agreement:
        return Agreement(self.questions + scale * other.questions, self.agreed + scale * other.agreed)


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
        agents: Mapping[str, Agent],
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
                pair = Pair(key, one, other, plausible)
                agreed = float(groups[one] == groups[other])
                self._unsaved[pair] = self._unsaved.get(pair, Agreement()).plus(Agreement(1.0, agreed))
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
            found[numbers] = found.get(numbers, Agreement()).plus(count, scales[pair.key])
        together = {numbers: (each.questions, each.agreed) for numbers, each in found.items()}
        fitted = skills_from_agreement(belief, list(self._agents.values()), together)
        return tuple(round(skill, 2) for skill in fitted)  # a policy for each hundredth

    def _merge(self, old: dict[Pair, Agreement], new: Mapping[Pair, Agreement]) -> dict[Pair, Agreement]:
        total = dict(old)
        for pair, count in new.items():
            merged = total.get(pair, Agreement()).plus(count)
            total[pair] = Agreement().plus(merged, 0.5) if merged.questions > MAX_QUESTIONS else merged
        kept = set(list(_questions_by_key(total))[: 20 * MAX_KEYS])
        return {pair: count for pair, count in total.items() if pair.key in kept}


def _questions_by_key(counts: Mapping[Pair, Agreement]) -> dict[str, float]:
    """The number of questions of each key, by its most frequent pair of agents; the largest first."""
    by_pair: dict[tuple[str, str, str], float] = {}
    for (key, one, other, _), count in counts.items():
        by_pair[key, one, other] = by_pair.get((key, one, other), 0.0) + count.questions
    largest: dict[str, float] = {}
    for (key, _, _), questions in by_pair.items():
        largest[key] = max(largest.get(key, 0.0), questions)
    return dict(sorted(largest.items(), key=lambda each: -each[1]))
