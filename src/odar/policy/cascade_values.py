"""Is another call worth its price? Values of the stages of a cascade, by backward induction (SPEC 9.4).

The state is two numbers: p, the probability that the leading answer is right, and q, the probability that the
reference agent (the last one of the last stage) would be right. Stopping is worth p. Going on to a stage is worth
the expected value after it, minus its price in units of V, the value of a right answer:

    value(state) = max(p, max over later stages of E[value(state after the stage)] − price)

What a call does to p and q comes from a `Simulation`: many questions with answers drawn from the belief, which was
fitted to recorded models, in every state that a cascade can reach. A simulation does not depend on prices.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from operator import mul
from typing import Any, Self

import numpy as np

from odar.policy.arrays import Array, Ints
from odar.policy.belief import (
    DIFFICULTY_DEVIATION,
    LENGTH_CORRELATION,
    MIN_SPREAD,
    SIGNAL_CORRELATION,
    Belief,
    Evidence,
    Opinion,
    RatedAgent,
    chance_level,
)

QUESTIONS = 1500
"""Number of questions that are drawn."""
SIMILAR = 200
"""Number of drawn questions that stand for one question."""
NO_ANSWER = 0.005
"""p below which no answer is worth anything, as if there were none."""
MARGIN = 0.001
"""A later stage is only preferred if it is better by this much; values have errors of that size."""
Reached = tuple[int, ...]
"""A state of a cascade: the numbers of the stages that were asked."""


@dataclass(frozen=True)
class Simulation:
    """p, and q of the reference agent, in every state of a cascade, for many questions."""

    p: Mapping[Reached, Array]
    q: Mapping[Reached, Array]
    prior_q: Sequence[Array]
    """q of the first agent of each stage before any answer: the mean of p after asking it alone."""
    difficulty: Array
    """d(x) of the questions."""
    several_answers: bool = False
    """Whether a stage asks for several answers: the belief lowers q a little with each, which is no noise."""

    @classmethod
    def run(
        cls,
        belief: Belief,
        stages: Sequence[Sequence[RatedAgent]],
        plausible: int = 0,
        possible: Iterable[Reached] | None = None,
    ) -> Simulation:
        """Draw questions and answers from the belief, the same ones each time, and compute p and q in every state.

        Args:
            belief: draws the answers and judges them.
            stages: the agents of each stage.
            plausible: number of plausible answers; 0 means many.
            possible: states that can be reached; None: all.
        """
        agents = [agent for stage in stages for agent in stage]
        opinions, difficulty = draw_answers(belief, agents, plausible, QUESTIONS)
        drawn = iter(opinions)
        by_stage = [[next(drawn) for _ in stage] for stage in stages]
        p: dict[Reached, Array] = {}
        q: dict[Reached, Array] = {}
        numbers = range(len(stages))
        subsets = (subset for count in range(len(stages) + 1) for subset in combinations(numbers, count))
        for reached in possible or subsets:
            seen = [opinion for number in reached for opinion in by_stage[number]]
            posterior = belief.posterior(Evidence(seen, plausible, difficulty))
            p[reached] = np.broadcast_to(posterior.p, QUESTIONS)
            q[reached] = np.broadcast_to(posterior.q(agents[-1]), QUESTIONS)
        prior = belief.posterior(Evidence((), plausible, difficulty))
        alone = [np.broadcast_to(prior.q(stage[0]), QUESTIONS) for stage in stages]
        return cls(p, q, alone, difficulty, any(len(stage) > 1 for stage in stages))

    def following(self, reached: Reached) -> list[int]:
        """Numbers of the stages that can follow a state."""
        after = reached[-1] + 1 if reached else 0
        return [number for number in range(after, len(self.prior_q)) if (*reached, number) in self.p]

    def similar(self, reached: Reached, p: float | None, q: float) -> Ints:
        """Numbers of the questions with the nearest p and q in a state; p is None before any answer."""
        distance = np.abs(self.q[reached] - q) + (0.0 if p is None else np.abs(self.p[reached] - p))
        return np.argsort(distance, kind="stable")[:SIMILAR]


def draw_answers(
    belief: Belief, agents: Sequence[RatedAgent], plausible: int = 0, size: int = QUESTIONS, seed: int = 42
) -> tuple[list[Opinion], Array]:
    """Draw the answers of agents to questions from a belief (group 0 is right), and d(x) of the questions."""
    rng = np.random.default_rng(seed)
    weights = belief.weights
    # what the answers to a question have in common in length and log-probability: (2, questions)
    common = rng.standard_normal((2, size))
    # d(x), which correlates with the length
    correlation = LENGTH_CORRELATION / math.sqrt(SIGNAL_CORRELATION)
    noise = rng.standard_normal(size)
    deviations = correlation * common[0] + math.sqrt(1 - correlation**2) * noise
    difficulty = weights["usual"] + DIFFICULTY_DEVIATION * deviations
    # −θ: a part that d(x) and the signals explain, and an unexplained rest
    scale = math.sqrt(1 / 3 / SIGNAL_CORRELATION)
    by_signals = scale * (weights["long_hard"] * common[0] + weights["sure_easy"] * common[1])
    ease = weights["hard"] * (difficulty - weights["usual"]) + by_signals
    unexplained = math.sqrt(max(weights["spread"] ** 2 - float(ease.var()), MIN_SPREAD**2))
    ease = ease - unexplained * rng.standard_normal(size)
    trap = rng.random(size) < weights["trap"]
    equal = np.where(trap, weights["lure_trap"], 1 / (1 + belief.variety(plausible)))
    variety = (1 - equal) / equal
    guess = chance_level(plausible)

    opinions: list[Opinion] = []
    for agent in agents:
        # the signals of the answer
        length, logprob = (
            _normal_rank(math.sqrt(SIGNAL_CORRELATION) * shared + math.sqrt(1 - SIGNAL_CORRELATION) * own)
            for shared, own in zip(common, rng.standard_normal((2, size)), strict=True)
        )
        opinion = Opinion(agent, np.zeros(size, dtype=np.int64), length, logprob)
        # an answer of its own
        answers, right = belief.chances(agent, [ease], belief.signal_shift(opinion), guess)[0]
        is_right = (rng.random(size) < right) & ~trap
        group = np.where(is_right, 0, _draw_wrong(rng, opinions, variety))
        # or that of an earlier opinion, or none
        repeat, earlier = belief.repeats(agent, opinions)
        if earlier:
            choice = rng.choice(np.array(earlier), size)
            said = np.array([other.group for other in opinions])[choice, np.arange(size)]
            group = np.where((rng.random(size) < repeat) & (said >= 0), said, group)
        group = np.where(rng.random(size) < answers, group, -1)
        opinions.append(replace(opinion, group=group))
    return opinions, difficulty


def _draw_wrong(rng: np.random.Generator, opinions: Sequence[Opinion], variety: Array) -> Ints:
    """Draw a wrong answer to each question: one of the earlier wrong ones, each with equal weight, or a new one."""
    size = len(variety)
    new = np.full(size, len(opinions) + 1)
    if not opinions:
        return new
    said = np.array([opinion.group for opinion in opinions])  # (opinions, questions)
    wrong = said > 0
    chosen = np.argmax(rng.random(said.shape) * wrong, axis=0)  # (questions,)
    count = wrong.sum(axis=0)
    old = rng.random(size) * (count + variety) < count
    return np.where(old, said[chosen, np.arange(size)], new)


@dataclass(frozen=True)
class StageValues:
    """Values of asking each stage, as smooth functions of p and q."""

    simulation: Simulation
    prices: Sequence[float]
    """Of each stage, in units of the value of a right answer."""
    names: Sequence[str] = ()
    """Of the stages, for `thresholds`."""
    without_answer: dict[int, Sequence[float]] = field(default_factory=dict)
    """Coefficients of the value of asking a stage without any answer."""
    with_answer: dict[int, Sequence[float]] = field(default_factory=dict)
    """Coefficients of the value of asking a stage after an answer."""
    stop_after: frozenset[int] = frozenset()
    """Stages whose answer alone ends every simulated question, because no other stage is worth its price then."""

    @classmethod
    def by_induction(cls, simulation: Simulation, prices: Sequence[float], names: Sequence[str] = ()) -> Self:
        """Compute the values backwards, from the last stage to the first; any stage can be skipped."""
        values = cls(simulation, prices, names)
        size = len(simulation.q[()])
        for number in reversed(range(len(prices))):
            # all states before and after this stage, one behind the other; the first one has no answers
            before = [reached for reached in simulation.p if number in simulation.following(reached)]
            then = [(*reached, number) for reached in before]
            p = np.concatenate([simulation.p[r] for r in before])
            q = np.concatenate([simulation.q[r] for r in before])
            q_then = np.concatenate([simulation.q[r] for r in then])
            after = np.concatenate([values.of_state(r) for r in then])
            # q keeps its mean in a call, and p after the first answer has the mean q: what they deviate by is noise
            change = q_then - q
            start = slice(size)
            known = p >= NO_ANSWER
            early = [change[start], simulation.p[then[0]] - simulation.prior_q[number]]
            late = [change[known]]
            if simulation.several_answers:
                early = _centred(early)
                late = _centred(late)
            values.without_answer[number] = _fitted(_terms_of_q(q[start]), after[start], early)
            values.with_answer[number] = _fitted(_terms_of_both(p[known], q[known]), after[known], late)
        alone = {reached: p for reached, p in simulation.p.items() if len(reached) == 1}
        stop = [reached[0] for reached, p in alone.items() if (values.of_state(reached) <= p)[p >= NO_ANSWER].all()]
        return replace(values, stop_after=frozenset(stop))

    def net_values(self, numbers: Iterable[int], p: Any, q: Any) -> list[Any]:
        """Values of asking these stages, less their prices; p and q are numbers, or arrays over many questions."""
        terms_of_q = _terms_of_q(q)
        terms_of_both = _terms_of_both(p, q)
        found: list[Any] = []
        for number in numbers:
            without = _dot(self.without_answer[number], terms_of_q)
            with_answer = _dot(self.with_answer[number], terms_of_both)
            found.append(_clip(_where(p < NO_ANSWER, without, with_answer)) - self.prices[number])
        return found

    def best_stage(self, numbers: Sequence[int], p: Any, q: Any) -> tuple[Any, Any]:
        """The stage that is worth most, of those that can be asked, and its worth; both arrays if p and q are.

        A later stage must be worth clearly more than an earlier one.
        """
        net_values = self.net_values(numbers, p, q)
        best: Any = numbers[0] + 0 * (p > 1)  # of the shape of p
        highest = net_values[0]
        for number, worth in zip(numbers[1:], net_values[1:], strict=True):
            better = worth > highest + MARGIN
            best = _where(better, number, best)
            highest = _where(better, worth, highest)
        return best, highest

    def next_stage(self, numbers: Sequence[int], p: Any, q: Any) -> Any:
        """The stage to ask next; −1 to stop. An array if p and q are arrays over many questions.

        Args:
            numbers: the stages that can be asked, in order.
            p: probability that the leading answer is right; None before the first call, which is always made.
            q: probability that the reference agent would be right.
        """
        known = 0.0 * q if p is None else p
        if not numbers:
            return -1 + 0 * (known > 1)
        best, worth = self.best_stage(numbers, known, q)
        return best if p is None else _where(worth <= p, -1, best)

    def of_state(self, reached: Reached) -> Array:
        """The value of a state for each question: that of stopping, or of the best stage that can follow."""
        p = self.simulation.p[reached]
        net_values = self.net_values(self.simulation.following(reached), p, self.simulation.q[reached])
        return np.asarray(np.maximum.reduce([p, *net_values]))

    def later_stages(self, reached: Reached, questions: Ints) -> Counter[int]:
        """How many of these questions ask each of the stages that can follow a state, now or later."""
        simulation = self.simulation
        counts = Counter[int]()
        following = simulation.following(reached)
        if not following or not len(questions):
            return counts
        choice = self.next_stage(following, simulation.p[reached][questions], simulation.q[reached][questions])
        for number in following:
            chosen = questions[choice == number]
            counts[number] += len(chosen)
            counts += self.later_stages((*reached, number), chosen)
        return counts

    @cached_property
    def thresholds(self) -> list[str]:
        """When each stage is asked, in words, for the q that is usual at each d(x) or p."""
        simulation = self.simulation
        order = np.argsort(simulation.difficulty)
        difficulty = np.linspace(0, 1, 101)
        q = np.interp(difficulty, simulation.difficulty[order], simulation.q[()][order])
        choice = self.next_stage(simulation.following(()), None, q)
        lines = ["start with " + _ranges("d", difficulty, choice, self.names)]
        for after in range(1, len(self.names)):
            reached = [state for state in simulation.p if state and state[-1] == after - 1]
            found = np.concatenate([simulation.p[state] for state in reached])
            usual = np.polyfit(found, np.concatenate([simulation.q[state] for state in reached]), 1)
            lowest = round(float(np.quantile(found[found >= NO_ANSWER], 0.02)), 2)
            p = np.arange(max(0.01, lowest), 1.0, 0.01)
            possible = sorted({number for state in reached for number in simulation.following(state)})
            choice = self.next_stage(possible, p, np.clip(np.polyval(usual, p), 0, 1))
            lines.append(f"after {self.names[after - 1]}: " + _ranges("p", p, choice, self.names))
        return lines


def _ranges(name: str, at: Array, choice: Ints, names: Sequence[str]) -> str:
    """Where each choice begins, as in "stop if p < 0.3, second if p < 0.86, else stop"."""
    labels = {-1: "stop", **dict(enumerate(names))}
    ends = [i for i in range(1, len(at)) if choice[i] != choice[i - 1]]
    words = [f"{labels[choice[i - 1]]} if {name} < {at[i]:.2f}" for i in ends]
    return ", ".join([*words, ("else " if words else "") + labels[choice[-1]]])


def _terms_of_q(q: Any) -> tuple[Any, ...]:
    """Terms of the value without an answer."""
    return 1.0 + 0 * q, q, q * q, q * q * q


def _terms_of_both(p: Any, q: Any) -> tuple[Any, ...]:
    """Terms of the value with an answer."""
    return 1.0 + 0 * q, p, q, p * q, p * p, q * q, p * p * q, p * q * q


def _dot(coefficients: Sequence[float], terms: Sequence[Any]) -> Any:
    return sum(map(mul, coefficients, terms))


def _where(condition: Any, then: Any, otherwise: Any) -> Any:
    """`np.where`; numpy takes thirty times as long for a number."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, then, otherwise)
    return then if condition else otherwise


def _clip(value: Any) -> Any:
    return np.clip(value, 0, 1) if isinstance(value, np.ndarray) else min(1.0, max(0.0, value))


def _fitted(terms: Sequence[Array], target: Array, noise: Sequence[Array]) -> tuple[float, ...]:
    """Least-squares coefficients of the terms, slightly shrunk, without what the noise explains."""
    both = np.column_stack([*terms, *noise])  # (N, terms and noise)
    ridge = 1e-5 * max(len(target), 1) * np.eye(both.shape[1])
    found = np.linalg.solve(both.T @ both + ridge, both.T @ target)
    return tuple(found[: len(terms)].tolist())


def _centred(values: Sequence[Array]) -> list[Array]:
    return [column - column.mean() if len(column) else column for column in values]


def _normal_rank(x: Array) -> Array:
    """The share of a normal distribution below each value, to three digits."""
    return 1 / (1 + np.exp(-1.5976 * x - 0.07056 * x**3))
