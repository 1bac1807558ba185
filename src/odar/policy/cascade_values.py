"""Is another call worth its price? Values of the stages of a cascade, by backward induction (SPEC 9.4).

The state is two numbers: p, the probability that the leading answer is right, and q, the probability that the
reference agent (the last one of the last stage) would be right. Stopping is worth p. Going on to a stage is worth
the expected value after it, minus its price in units of V, the value of a right answer. What a call does to p and
q comes from an `Outlook`: every state that a cascade can reach, for many questions. They are drawn from the
belief, which was fitted to recorded models, or are those of a user's own recording. An outlook does not depend on
prices.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from operator import mul
from typing import Any

import numpy as np

from odar.policy.arrays import Array, Ints
from odar.policy.belief import (
    DEVIATION_OF_D,
    HARD_IS_LONG,
    LEAST_SPREAD,
    LOOKS_ALIKE,
    Agent,
    Belief,
    Opinion,
    State,
    chance_level,
)

QUESTIONS = 1500
"""Number of questions that are drawn."""
SIMILAR = 200
"""Number of drawn questions that stand for one question."""
NO_ANSWER = 0.005
"""Below this p there is no answer."""
MARGIN = 0.001
"""A stage is skipped only if the later one is better by this much; values have errors of that size."""
Reached = tuple[int, ...]


@dataclass(frozen=True)
class Outlook:
    """What may happen in a cascade: p, and q of the reference, in every state of many questions."""

    p: Mapping[Reached, Array]
    """By the numbers of the stages that were asked."""
    q: Mapping[Reached, Array]
    alone: Sequence[Array]
    """q of the first agent of each stage before any answer: the mean of p after asking it alone."""
    difficulty: Array
    """d(x) of the questions; NaN if unknown."""
    several: bool = False
    """Whether a stage asks for several samples: the belief lowers q a little with each, which is no noise."""

    def following(self, reached: Reached) -> list[int]:
        """Return the numbers of the stages that can follow a state."""
        after = reached[-1] + 1 if reached else 0
        return [number for number in range(after, len(self.alone)) if (*reached, number) in self.p]

    def similar(self, reached: Reached, p: float | None, q: float) -> Ints:
        """Return the numbers of the questions with the nearest p and q in a state; p is None before any answer."""
        distance = np.abs(self.q[reached] - q) + (0.0 if p is None else np.abs(self.p[reached] - p))
        return np.argsort(distance, kind="stable")[:SIMILAR]

    @classmethod
    def of_opinions(
        cls,
        belief: Belief,
        stages: Sequence[Sequence[Opinion]],
        plausible: Any,
        difficulty: Any,
        reference: Agent,
        possible: Iterable[Reached] | None = None,
    ) -> Outlook:
        """Judge every state, or all that are possible, of questions to which all answers are known.

        The numbers of opinions are arrays. The first state has no opinions.
        """
        p: dict[Reached, Array] = {}
        q: dict[Reached, Array] = {}
        size = len(stages[0][0].group)
        every = range(len(stages))
        for reached in possible or [each for count in range(len(every) + 1) for each in combinations(every, count)]:
            opinions = [opinion for stage in reached for opinion in stages[stage]]
            judgment = belief.judge(State(opinions, plausible, difficulty))
            p[reached] = np.broadcast_to(judgment.p, size)
            q[reached] = np.broadcast_to(judgment.q(reference), size)
        nothing = belief.judge(State((), plausible, difficulty))
        alone = [np.broadcast_to(nothing.q(stage[0].agent), size) for stage in stages]
        known = np.full(size, np.nan) if difficulty is None else np.broadcast_to(difficulty, size)
        return cls(p, q, alone, known, any(len(stage) > 1 for stage in stages))

    @classmethod
    def drawn(
        cls,
        belief: Belief,
        stages: Sequence[Sequence[Agent]],
        plausible: int = 0,
        size: int = QUESTIONS,
        possible: Iterable[Reached] | None = None,
    ) -> Outlook:
        """Draw questions and answers from the belief; the same ones each time."""
        listed = [agent for stage in stages for agent in stage]
        opinions, difficulty = drawn_answers(belief, listed, plausible, size)
        given = iter(opinions)
        by_stage = [[next(given) for _ in stage] for stage in stages]
        return cls.of_opinions(belief, by_stage, plausible, difficulty, listed[-1], possible)


def drawn_answers(
    belief: Belief, agents: Sequence[Agent], plausible: int = 0, size: int = QUESTIONS, seed: int = 42
) -> tuple[list[Opinion], Array]:
    """Draw the answers of agents to questions from a belief, group 0 being right; and d(x) of the questions."""
    questions = _Questions(belief, plausible, size, seed)
    return [questions.answer(agent) for agent in agents], questions.difficulty


class _Questions:
    """Questions drawn from a belief, and the answers so far."""

    def __init__(self, belief: Belief, plausible: int, size: int, seed: int) -> None:
        weights = belief.weights
        self.belief = belief
        self.size = size
        self.rng = np.random.default_rng(seed)
        self.opinions: list[Opinion] = []
        self.looks = self.rng.standard_normal((2, size))  # of length and of log-probability
        noise = self.rng.standard_normal(size)
        rank = HARD_IS_LONG / math.sqrt(LOOKS_ALIKE)
        self.difficulty = weights["usual"] + DEVIATION_OF_D * (
            rank * self.looks[0] + math.sqrt(1 - rank**2) * noise
        )
        # the rank of one answer tells a part of what the looks of a question tell about its difficulty
        scale = math.sqrt(1 / 3 / LOOKS_ALIKE)
        looks = weights["long_hard"] * self.looks[0] + weights["sure_easy"] * self.looks[1]
        self.ease = weights["hard"] * (self.difficulty - weights["usual"]) + scale * looks
        rest = math.sqrt(max(weights["spread"] ** 2 - float(self.ease.var()), LEAST_SPREAD**2))
        self.ease = self.ease - rest * self.rng.standard_normal(size)
        self.trap = self.rng.random(size) < weights["trap"]
        equal = np.where(self.trap, weights["lure_trap"], 1 / (1 + belief.variety(plausible)))
        self.variety = (1 - equal) / equal
        self.guess = chance_level(plausible)

    def answer(self, agent: Agent) -> Opinion:
        """Draw the answers of an agent; group 0 is right."""
        rng, size = self.rng, self.size
        noise = rng.standard_normal((2, size))
        length, logprob = (
            _normal_rank(math.sqrt(LOOKS_ALIKE) * look + math.sqrt(1 - LOOKS_ALIKE) * own)
            for look, own in zip(self.looks, noise, strict=True)
        )
        opinion = Opinion(agent, np.zeros(size, dtype=np.int64), length, logprob)
        answers, chance_right = self.belief.chances(agent, [self.ease], self.belief.own(opinion), self.guess)[0]
        right = (rng.random(size) < chance_right) & ~self.trap
        group = np.where(right, 0, self._wrong())
        chance, earlier = self.belief.repeats(agent, self.opinions)
        if earlier:
            choice = rng.choice(np.array(earlier), size)
            said = np.array([each.group for each in self.opinions])[choice, np.arange(size)]
            group = np.where((rng.random(size) < chance) & (said >= 0), said, group)
        group = np.where(rng.random(size) < answers, group, -1)
        self.opinions.append(replace(opinion, group=group))
        return self.opinions[-1]

    def _wrong(self) -> Ints:
        """Draw wrong answers: one of the earlier wrong ones, each with equal weight, or a new one."""
        new = np.full(self.size, len(self.opinions) + 1)
        if not self.opinions:
            return new
        said = np.array([each.group for each in self.opinions])  # (opinions, questions)
        wrong = said > 0
        chosen = np.argmax(self.rng.random(said.shape) * wrong, axis=0)
        count = wrong.sum(axis=0)
        old = self.rng.random(self.size) * (count + self.variety) < count
        return np.where(old, said[chosen, np.arange(self.size)], new)


@dataclass(frozen=True)
class Values:
    """Values of asking each stage, as smooth functions of p and q."""

    prices: Sequence[float]
    """Of each stage, in units of the value of a right answer."""
    first: Mapping[int, Sequence[float]]
    """Coefficients of the value of asking a stage without any answer."""
    later: Mapping[int, Sequence[float]]
    """Coefficients of the value of asking a stage after an answer."""
    last: frozenset[int] = frozenset()
    """Stages after whose answer no other stage is worth its price, in none of the questions of the outlook."""

    @classmethod
    def by_induction(cls, outlook: Outlook, prices: Sequence[float], value_usd: float) -> Values:
        """Compute the values backwards, from the last stage to the first; any stage can be skipped."""
        paid = tuple(price / value_usd for price in prices)
        values = cls(paid, {}, {})
        size = len(outlook.q[()])
        for number in range(len(paid) - 1, -1, -1):
            before = [reached for reached in outlook.p if number in outlook.following(reached)]
            then = [(*reached, number) for reached in before]
            p, q = (np.concatenate([kept[r] for r in before]) for kept in (outlook.p, outlook.q))
            q_then = np.concatenate([outlook.q[r] for r in then])
            after = np.concatenate([values.best(outlook, r) for r in then])
            # q keeps its mean in a call, and p after the first answer has the mean q: what they deviate by is noise
            change = q_then - q
            start = slice(size)  # the first of `before` is the state without opinions
            known = p >= NO_ANSWER
            early, late = [change[start], outlook.p[then[0]] - outlook.alone[number]], [change[known]]
            if outlook.several:
                early, late = _centred(early), _centred(late)
            first = _fitted(_of_q(q[start]), after[start], early)
            later = _fitted(_of_both(p[known], q[known]), after[known], late)
            values = replace(values, first={**values.first, number: first}, later={**values.later, number: later})
        alone = {reached: p for reached, p in outlook.p.items() if len(reached) == 1}
        last = [
            reached[0] for reached, p in alone.items() if (values.best(outlook, reached) <= p)[p >= NO_ANSWER].all()
        ]
        return replace(values, last=frozenset(last))

    def of_asking(self, number: int, p: Any, q: Any) -> Any:
        """Return the value of asking a stage, less its price."""
        if not isinstance(p, np.ndarray) and not isinstance(q, np.ndarray):
            return self.of_each((number,), p, q)[0]
        first = sum(c * term for c, term in zip(self.first[number], _of_q(q), strict=True))
        later = sum(c * term for c, term in zip(self.later[number], _of_both(p, q), strict=True))
        return np.clip(later + (p < NO_ANSWER) * (first - later), 0, 1) - self.prices[number]

    def of_each(self, numbers: Iterable[int], p: float, q: float) -> list[float]:
        """Return the values of asking some stages about one question, less their prices."""
        known = self.later if p >= NO_ANSWER else self.first
        terms = _of_both(p, q) if p >= NO_ANSWER else _of_q(q)
        found = []
        for number in numbers:
            value = sum(map(mul, known[number], terms))
            found.append(min(1.0, max(0.0, value)) - self.prices[number])
        return found

    def best(self, outlook: Outlook, reached: Reached) -> Array:
        """Return the value of the best choice in a state: to stop, or one of the stages that can follow."""
        p = outlook.p[reached]
        value = p
        for number in outlook.following(reached):
            value = np.maximum(value, self.of_asking(number, p, outlook.q[reached]))
        return value

    def next_stage(self, after: int, p: Any, q: Any, stages: Iterable[int] | None = None) -> Any:
        """Return the number of the stage to ask next; −1 to stop. The first call is always made.

        Args:
            after: number of stages that were asked or skipped.
            p: probability that the leading answer is right; 0 without an answer.
            q: probability that the reference agent would be right.
            stages: those that can be asked, if not all.

        p and q may be arrays, with one entry for each of many questions.
        """
        choice: Any = -1 + 0 * (p > 1)  # of the shape of p
        best = p
        for number in range(after, len(self.prices)) if stages is None else stages:
            value = self.of_asking(number, p, q)
            better = (value > best + MARGIN * (choice >= 0)) | ((after == 0) & (choice < 0))
            choice = choice + better * (number - choice)
            best = best + better * (value - best)
        return choice

    def later_stages(self, outlook: Outlook, reached: Reached, questions: Ints) -> Counter[int]:
        """Return how many of these questions ask each of the stages that can follow a state, now or later."""
        counts = Counter[int]()
        following = outlook.following(reached)
        if not following or not len(questions):
            return counts
        p, q = (kept[reached][questions] for kept in (outlook.p, outlook.q))
        choice = self.next_stage(reached[-1] + 1, p, q, following)
        for number in following:
            chosen = questions[choice == number]
            counts[number] += len(chosen)
            counts += self.later_stages(outlook, (*reached, number), chosen)
        return counts

    def describe(self, names: Sequence[str], outlook: Outlook) -> list[str]:
        """Return the thresholds in words, for the q that is usual at each d(x) or p, and names of the stages."""
        lines = []
        if not np.isnan(outlook.difficulty).any():
            order = np.argsort(outlook.difficulty)
            difficulty = np.linspace(0, 1, 101)
            q = np.interp(difficulty, outlook.difficulty[order], outlook.q[()][order])
            choice = self.next_stage(0, np.zeros(len(q)), q)
            lines.append("start with " + _ranges("d", difficulty, choice, names))
        for after in range(1, len(names)):
            reached = [state for state in outlook.p if state and state[-1] == after - 1]
            found = np.concatenate([outlook.p[state] for state in reached])
            usual = np.polyfit(found, np.concatenate([outlook.q[state] for state in reached]), 1)
            p = np.arange(max(0.01, round(float(np.quantile(found[found >= NO_ANSWER], 0.02)), 2)), 1.0, 0.01)
            possible = sorted({number for state in reached for number in outlook.following(state)})
            choice = self.next_stage(after, p, np.clip(np.polyval(usual, p), 0, 1), possible)
            lines.append(f"after {names[after - 1]}: " + _ranges("p", p, choice, names))
        return lines


def _ranges(name: str, at: Array, choice: Ints, names: Sequence[str]) -> str:
    """Return where each choice begins, as in "stop; second if p < 0.86"."""
    ends = [i for i in range(1, len(at)) if choice[i] != choice[i - 1]]
    words = [_words(choice[i - 1], names) + f" if {name} < {at[i]:.2f}" for i in ends]
    return ", ".join([*words, ("else " if words else "") + _words(choice[-1], names)])


def _words(choice: int, names: Sequence[str]) -> str:
    return "stop" if choice < 0 else names[choice]


def _of_q(q: Any) -> tuple[Any, ...]:
    """Terms of the value without an answer."""
    return 1.0 + 0 * q, q, q * q, q * q * q


def _of_both(p: Any, q: Any) -> tuple[Any, ...]:
    """Terms of the value with an answer."""
    return 1.0 + 0 * q, p, q, p * q, p * p, q * q, p * p * q, p * q * q


def _fitted(terms: Sequence[Array], target: Array, noise: Sequence[Array]) -> tuple[float, ...]:
    """Return least-squares coefficients of the terms, slightly shrunk, without what the noise explains."""
    both = np.column_stack([*terms, *noise])  # (N, terms and noise)
    ridge = 1e-5 * max(len(target), 1) * np.eye(both.shape[1])
    found = np.linalg.solve(both.T @ both + ridge, both.T @ target)
    return tuple(found[: len(terms)].tolist())


def _centred(values: Sequence[Array]) -> list[Array]:
    return [each - each.mean() if len(each) else each for each in values]


def _normal_rank(x: Array) -> Array:
    """Return the share of a normal distribution below each value, to three digits."""
    return 1 / (1 + np.exp(-1.5976 * x - 0.07056 * x**3))
