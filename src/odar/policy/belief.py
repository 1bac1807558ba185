"""Belief about the answers to a question: is the leading one right, and would another agent be right (SPEC 9.3)?

This is an item response model, as used to evaluate exams. A question has a difficulty θ, of which d(x) and the
signals of the answers (length, log-probability) explain a part. Given θ, in logits:

    P(an agent answers) = σ(a − θ)           a follows from the share of questions to which it gives an answer
    P(it knows the answer) = σ(s − θ)        s follows from its skill, the share to which it knows the answer
    P(right, if it answers) = g + (1 − g)·σ(s − θ)/σ(a − θ)      g: a guess among the plausible answers is right

Two wrong answers are equal by chance (always if two answers are plausible, seldom among many) or because the
question has a tempting wrong answer. Agents of one family, samples of one agent and verifiers that saw a proposal
repeat an earlier answer with some probability, so their agreement says less. A few questions are traps, to which no
agent knows the answer. Sums over θ give p, the probability that the leading answer is right, and q, the probability
that another agent would be right.

Every step is plain arithmetic, so each number of the evidence may also be an array with one entry for each of many
questions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import resources
from typing import Any

import numpy as np

from odar.errors import InputError

_STEPS = tuple(0.6 * step for step in range(-4, 5))
_DENSITIES = tuple(math.exp(-0.5 * node * node) for node in _STEPS)
_WEIGHTS = tuple(density / sum(_DENSITIES) for density in _DENSITIES)
_SCALE = math.sqrt(sum(weight * node * node for node, weight in zip(_STEPS, _WEIGHTS, strict=True)))
QUADRATURE = tuple((node / _SCALE, weight) for node, weight in zip(_STEPS, _WEIGHTS, strict=True))
"""Difficulties over which the model sums, in standard deviations, and their weights."""
SKILL_RANGE = (0.02, 0.98)
"""Skills are clipped to this range, because their logits must be finite."""
DIFFICULTY_DEVIATION = 0.19
"""Standard deviation of d(x) among questions."""
SIGNAL_CORRELATION = 0.47
"""Correlation between the ranks of two models' answers to a question, by length and by log-probability."""
LENGTH_CORRELATION = 0.43
"""Correlation of d(x) with the rank of the length."""
MIN_SPREAD = 0.5
"""Minimum standard deviation of the difficulty, in logits: no evidence tells it exactly."""
MIN_UNANSWERED = 0.02
"""Minimum of `RatedAgent.unanswered`: every agent may fail to answer."""
PROBABILITY_RANGE = (1e-4, 1 - 1e-4)
"""p and q are clipped to this range."""
WEIGHTS = {
    "spread": "standard deviation of the difficulty of a question of which nothing is known, in logits",
    "hard": "d(x) above the usual one, as a shift of all logits",
    "usual": "the usual d(x), at which skills hold",
    "long_hard": "length of the answers, as a shift of all logits",
    "sure_easy": "log-prob of the answers, as a shift of all logits",
    "long": "length of an answer, as a shift of its own logit",
    "sure": "log-prob of an answer, as a shift of its own logit",
    "sure_direct": "the same for a direct answer",
    "unstated": "an answer that is not marked, as a shift of its own logit",
    "lure_options": "probability that two wrong choices among options are equal, beyond chance",
    "lure_many": "the same for numbers and free answers",
    "trap": "share of questions that no agent can answer, such as those with a wrong reference",
    "lure_trap": "probability that two answers to such a question are equal",
    "repeat_family": "probability that an agent repeats an earlier answer of its family",
    "repeat_agent": "probability that a sample repeats an earlier one of the same agent",
    "repeat_seen": "probability that a verifier repeats the proposal that it saw",
    "p_offset": "offset of the logit of p; 0 unless calibrated",
    "q_offset": "offset of the logit of q; 0 unless calibrated",
}
"""The weights and what they mean."""
TIE = 1e-9
"""Relative difference below which two answers are equally likely, because sums are rounded; the first one leads."""
PROBABILITIES = ("lure_options", "lure_many", "trap", "lure_trap", "repeat_family", "repeat_agent", "repeat_seen")
"""Weights that are probabilities."""


@dataclass(frozen=True, slots=True)
class RatedAgent:
    """How often an agent is right, and whose mistakes it shares.

    Its models and prompts are in `odar.agents`.
    """

    name: str
    skill: Any
    """Share of questions to which it knows the answer; of those with options it is right on more, by guessing."""
    family: str
    """Family of its model."""
    unanswered: Any = 0.0
    """Share of questions to which it gives no answer, such as by reaching its limit of tokens."""
    by_kind: tuple[tuple[str, float], ...] = ()
    """Its skill on kinds of questions, if a calibration has measured it."""

    def on(self, kind: str) -> RatedAgent:
        """The agent with its skill on questions of a kind; itself if that is unknown.

        >>> RatedAgent("fast", 0.6, "gpt", by_kind=(("yes/no", 0.7),)).on("yes/no").skill
        0.7
        """
        return next((replace(self, skill=skill, by_kind=()) for name, skill in self.by_kind if name == kind), self)


@dataclass(frozen=True, slots=True)
class Opinion:
    """The evidence of one answer; length and log-probability are ranks (0 to 1) among the agent's answers."""

    agent: RatedAgent
    group: Any
    """Number of the group of equal answers, from 0; −1 without an answer."""
    length: Any = None
    """None if unknown."""
    logprob: Any = None
    """Of the answer itself if it is direct, else the mean over the text; None if unknown."""
    direct: Any = False
    """Whether it is an answer and little else, without reasoning."""
    stated: Any = True
    """Whether it marked its final answer, if the prompt asks for that."""
    saw_proposal: bool = False
    """Whether the agent was shown the leading answer and asked to check it."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a question: the opinions so far, in order, how many answers are plausible, and d(x)."""

    opinions: Sequence[Opinion] = ()
    plausible: Any = 0
    """2 for yes or no, the number of options, 0 for many."""
    difficulty: Any = None
    """d(x); None if unknown."""


@dataclass(frozen=True)
class Belief:
    """The fitted weights; see `WEIGHTS` for what each means.

    >>> belief = Belief.load()
    >>> fast, second = RatedAgent("fast", 0.6, "gpt"), RatedAgent("second", 0.6, "gemini")
    >>> agree = belief.posterior(Evidence([Opinion(fast, 0), Opinion(second, 0)], plausible=10))
    >>> differ = belief.posterior(Evidence([Opinion(fast, 0), Opinion(second, 1)], plausible=10))
    >>> agree.p > 0.8 > 0.6 > differ.p
    True
    """

    weights: Mapping[str, float]

    def posterior(self, evidence: Evidence) -> Posterior:
        return Posterior(self, evidence)

    def chances(self, agent: RatedAgent, eases: Sequence[Any], shift: Any, guess: Any) -> list[tuple[Any, Any]]:
        """Probabilities that an agent answers, and that its answer is right, at each ease of a question.

        Args:
            agent: over all questions, it gives an answer to 1 − `unanswered` and knows the answer to `skill`.
            eases: −θ, by which both logits are shifted.
            shift: further shift of the second logit, such as `signal_shift`.
            guess: probability that a guess is right.
        """
        spread = self.weights["spread"]
        knows = _strength(agent.skill / (1 - self.weights["trap"]), spread)
        answers = _strength(1 - np.maximum(agent.unanswered, MIN_UNANSWERED), spread)
        # σ(knows + ease) / σ(answers + ease), as odds
        ratio = _exp(np.minimum(knows - answers, -0.1))
        factor = _exp(shift) / (1 - ratio)
        found = []
        for ease in eases:
            odds = (_exp(knows + ease) + ratio) * factor
            found.append((sigmoid(answers + ease), guess + (1 - guess) * odds / (1 + odds)))
        return found

    def repeats(
        self, agent: RatedAgent, earlier: Sequence[Opinion], saw_proposal: bool = False
    ) -> tuple[float, Sequence[int]]:
        """Probability that an agent repeats one of the earlier opinions, and the numbers of those it may repeat."""
        if not earlier:
            return 0.0, ()
        if saw_proposal:
            return self.weights["repeat_seen"], (0,)
        if found := [i for i, each in enumerate(earlier) if each.agent.name == agent.name]:
            return self.weights["repeat_agent"], found
        found = [i for i, each in enumerate(earlier) if each.agent.family == agent.family]
        return (self.weights["repeat_family"] if found else 0.0), found

    def signal_shift(self, opinion: Opinion) -> Any:
        """Shift of the logit that an opinion is right, by its length, log-probability and form."""
        weights = self.weights
        sure = weights["sure"] + opinion.direct * (weights["sure_direct"] - weights["sure"])
        shift = weights["long"] * _centred(opinion.length) + sure * _centred(opinion.logprob)
        return shift + weights["unstated"] * (1 - opinion.stated)

    def variety(self, plausible: Any) -> Any:
        """How many wrong answers there are in effect: two are equal with probability 1 / (1 + variety)."""
        options = 1.0 * (plausible > 1)
        chance = options / (1 + options * (plausible - 2))  # 1 for two plausible answers, 0 for many
        lure = self.weights["lure_options"] * options + self.weights["lure_many"] * (1 - options)
        equal = chance + (1 - chance) * lure
        return (1 - equal) / equal + 1e-6

    def ease(self, evidence: Evidence) -> tuple[Any, float]:
        """Mean and standard deviation of −θ, given d(x) and the signals of all answers."""
        weights = self.weights
        mean: Any = 0.0
        by_d = 0.0
        if evidence.difficulty is not None:
            mean = weights["hard"] * (evidence.difficulty - weights["usual"])
            by_d = weights["hard"] * DIFFICULTY_DEVIATION
        explained = []
        for name, ranks in (
            ("long_hard", [opinion.length for opinion in evidence.opinions]),
            ("sure_easy", [opinion.logprob for opinion in evidence.opinions]),
        ):
            known = [_centred(rank) for rank in ranks if rank is not None]
            alike = (
                1 + (len(known) - 1) * SIGNAL_CORRELATION
            )  # the best divisor to predict what the ranks have in common
            if known:
                mean = mean + weights[name] * sum(known) / alike
            explained.append(weights[name] * math.sqrt(len(known) / alike / 3))  # a rank has the variance 1/3
        by_length, by_logprob = explained
        variance = by_d**2 + by_length**2 + by_logprob**2 + 2 * LENGTH_CORRELATION * by_d * by_length
        return mean, math.sqrt(max(weights["spread"] ** 2 - variance, MIN_SPREAD**2))

    def changed(self, weights: Mapping[str, Any], origin: str) -> Belief:
        """The belief with some other weights.

        Raises:
            InputError: a weight is unknown or no number; the message begins with the origin of the weights.
        """
        for name, value in weights.items():
            if name not in WEIGHTS:
                raise InputError(f"{origin}: {name!r} is not a weight of the belief: {', '.join(WEIGHTS)}")
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
                raise InputError(f"{origin}: the weight {name} must be a number, got {value!r}")
        return replace(self, weights={**self.weights, **weights})

    @classmethod
    @cache
    def load(cls) -> Belief:
        """The belief that comes with ODAR."""
        text = resources.files("odar.policy").joinpath("belief.json").read_text("utf-8")
        return Belief(json.loads(text)["weights"])


class Posterior:
    """The belief after some evidence, by Bayes' rule.

    Attributes:
        leader: number of the leading group; −1 if there is no answer.
        p: probability that the leading answer is right.
    """

    def __init__(self, belief: Belief, evidence: Evidence) -> None:
        self._belief = belief
        self._opinions = opinions = evidence.opinions
        self._guess = chance_level(evidence.plausible)
        ease, spread = belief.ease(evidence)
        self._eases = [ease - spread * node for node, _ in QUADRATURE]
        # of each opinion: its chance of being right at each difficulty; the probabilities that its agent repeats an
        # earlier answer, and one that is equal to it; and for each earlier opinion, 1 if it is equal, else 0
        self._chances: list[list[Any]] = []
        self._repeat: list[float] = []
        self._repeat_equal: list[Any] = []
        self._same: list[list[Any]] = []
        # the density of each difficulty, given who answered at all
        self._density: list[Any] = [weight for _, weight in QUADRATURE]
        for j, opinion in enumerate(opinions):
            chances = belief.chances(opinion.agent, self._eases, belief.signal_shift(opinion), self._guess)
            self._chances.append([right for _, right in chances])
            silent = 1.0 * (opinion.group < 0)  # a factor of P(answers), or of 1 − P(answers) if it gave none
            self._density = [
                density * (answers + silent * (1 - 2 * answers))
                for density, (answers, _) in zip(self._density, chances, strict=True)
            ]
            repeat, earlier = belief.repeats(opinion.agent, opinions[:j], opinion.saw_proposal)
            same = [_equal(opinion.group, other.group) for other in opinions[:j]]
            self._repeat.append(repeat)
            self._repeat_equal.append(repeat * sum(same[i] for i in earlier) / max(len(earlier), 1))
            self._same.append(same)
        # the joint probability of all opinions with "this answer is right", at each difficulty; each answer counts
        # at the first opinion that gives it, and the first of equally likely ones leads
        variety = belief.variety(evidence.plausible)
        self._right: list[list[Any]] = []
        self.leader: Any = -1
        best: Any = 0.0
        total: Any = 0.0
        for h, opinion in enumerate(opinions):
            first: Any = 1.0 * (opinion.group >= 0)
            for same_group in self._same[h]:
                first = first * (1 - same_group)
            self._right.append([first * value for value in self._likelihoods(h, variety)])
            weight = sum(self._right[-1])
            total = total + weight
            better = 1 * (weight > best * (1 + TIE))
            best = best + better * (weight - best)
            self.leader = self.leader + better * (opinion.group - self.leader)
        self._none = self._likelihoods(None, variety)
        # at any difficulty, no agent knows the answer to a trap
        trap = belief.weights["trap"]
        lure = belief.weights["lure_trap"]
        if_trap: Any = 1.0
        for constant, _ in self._factors(None, (1 - lure) / lure):
            if_trap = if_trap * constant
        self._total = (total + sum(self._none)) * (1 - trap) + if_trap * sum(self._density) * trap
        p = sigmoid(belief.weights["p_offset"] + logit(best * (1 - trap) / self._total))
        self.p: Any = p * (self.leader >= 0)

    def q(self, agent: RatedAgent) -> Any:
        """Probability that this agent, asked independently, would be right."""
        weights = self._belief.weights
        chances = self._belief.chances(agent, self._eases, 0.0, self._guess)
        rights = [answers * right for answers, right in chances]
        repeat, earlier = self._belief.repeats(agent, self._opinions)
        own: Any = sum(r * w for r, w in zip(rights, self._none, strict=True))
        repeated: Any = 0.0
        for at_difficulties, opinion in zip(self._right, self._opinions, strict=True):
            own = own + sum(r * w for r, w in zip(rights, at_difficulties, strict=True))
            if repeat:
                share = sum(_equal(opinion.group, self._opinions[i].group) for i in earlier) / len(earlier)
                repeated = repeated + share * sum(at_difficulties)
        q = (1 - weights["trap"]) * ((1 - repeat) * own + repeat * repeated) / self._total
        return sigmoid(weights["q_offset"] + logit(q))

    def _likelihoods(self, h: int | None, variety: Any) -> list[Any]:
        """Likelihood of all opinions at each difficulty, if number `h` is right; None: if none of them is."""
        values = list(self._density)
        for right, (constant, slope) in zip(self._chances, self._factors(h, variety), strict=True):
            values = [value * (constant + slope * r) for value, r in zip(values, right, strict=True)]
        return values

    def _factors(self, h: int | None, variety: Any) -> Iterator[tuple[Any, Any]]:
        """Yield for each opinion, if number `h` is right, P(this opinion, given those before it) as constant and
        slope of a line in P(right): it is a repetition, no answer, or an answer of its own."""
        wrong: Any = 0.0  # wrong answers so far
        repeats = zip(self._repeat, self._repeat_equal, self._same, strict=True)
        for opinion, (repeat, repeat_equal, same) in zip(self._opinions, repeats, strict=True):
            is_right: Any = 0.0 if h is None else _equal(opinion.group, self._opinions[h].group)
            answered = 1.0 * (opinion.group >= 0)
            choice = _next_wrong(sum(same), wrong, variety)
            own = (1 - repeat) * answered
            yield (
                repeat_equal + own * (1 - is_right) * choice + (1 - answered),
                own * (is_right - (1 - is_right) * choice),
            )
            wrong = wrong + answered * (1 - is_right)


def _next_wrong(equal: Any, before: Any, variety: Any) -> Any:
    """Probability of a wrong answer, given those before it, by a Chinese restaurant process.

    `equal` of the `before` wrong answers are equal to it; 0: it is new.
    """
    return (equal + (equal == 0) * variety) / (before + variety)


def _strength(share: Any, spread: float) -> Any:
    """The x for which the mean of σ(x − θ) over all questions is this share."""
    return _solve(share, spread) if isinstance(share, np.ndarray) else _solve_number(float(share), spread)


def _solve(share: Any, spread: float) -> Any:
    x = logit(share, SKILL_RANGE)
    target = sigmoid(x)
    x = x * math.sqrt(1 + math.pi * spread**2 / 8)  # the logistic-normal approximation
    for _ in range(3):  # Newton's method
        shares = [(sigmoid(x - spread * node), weight) for node, weight in QUADRATURE]
        mean: Any = sum(weight * share for share, weight in shares)
        slope: Any = sum(weight * share * (1 - share) for share, weight in shares)
        x = x - (mean - target) / slope
    return x


_solve_number = lru_cache(maxsize=4096)(_solve)


def chance_level(plausible: Any) -> Any:
    """Probability that a guess is right; 0 if many answers are plausible.

    >>> chance_level(2), chance_level(0)
    (0.5, 0.0)
    """
    options = 1.0 * (plausible > 1)
    return options / (options * plausible + (1 - options))


def without_guesses(right: Any, guess: Any, unanswered: Any = 0.0) -> Any:
    """Share of questions to which the answer is known, given the share that is right.

    >>> float(without_guesses(0.75, guess=0.5))
    0.5
    """
    return np.maximum((right - guess * (1 - unanswered)) / (1 - guess), SKILL_RANGE[0])


def _equal(a: Any, b: Any) -> Any:
    """1.0 where both are the same group of answers, else 0.0."""
    return 1.0 * (a == b) * (a >= 0)


def _centred(rank: Any) -> Any:
    """A rank on the scale from −1 to 1; 0 if it is unknown."""
    return 0.0 if rank is None else 2 * rank - 1


def _exp(x: Any) -> Any:
    return np.exp(x) if isinstance(x, np.ndarray) else math.exp(x)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + _exp(-x))


def logit(p: Any, ends: tuple[float, float] = PROBABILITY_RANGE) -> Any:
    """Logit of a probability that is clipped to a range."""
    low, high = ends
    if isinstance(p, np.ndarray):
        p = np.clip(p, low, high)
        return np.log(p / (1 - p))
    p = min(high, max(low, p))
    return math.log(p / (1 - p))
