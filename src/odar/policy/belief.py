"""Belief about the answers to a question: which one is right, and would another agent be right (SPEC 9.3)?

An item response model. A question has a difficulty, known only roughly from d(x) and from how the answers look.
An agent knows the answer with probability σ(strength − difficulty), where its strength follows from its skill;
else it guesses among the plausible answers. Whether it answers at all depends on the difficulty in the same way.
Wrong answers are equal by chance (always between two plausible answers, seldom among many) and because questions
have tempting wrong answers. Agents of one family, samples of one agent and verifiers that saw a proposal repeat
earlier answers with some probability, so their agreement says less. The sum over difficulties gives p, the
probability that the leading answer is right, and q, the probability that another agent would be right.

Every step is plain arithmetic, so each number of a state may also be an array with one entry for each of many
questions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib import resources
from typing import Any

import numpy as np

from odar.errors import InputError
from odar.formats import check_format

FORMAT = "odar-belief/1"
_STEPS = tuple(0.6 * step for step in range(-4, 5))
_DENSITY = tuple(math.exp(-0.5 * node * node) for node in _STEPS)
DENSITY = tuple(value / sum(_DENSITY) for value in _DENSITY)
_SCALE = math.sqrt(sum(weight * node * node for node, weight in zip(_STEPS, DENSITY, strict=True)))
NODES = tuple(node / _SCALE for node in _STEPS)
"""Difficulties, in standard deviations, over which the model sums; `DENSITY` has their weights."""
SKILL_RANGE = (0.02, 0.98)
"""Skills are clipped to this range, because their logits must be finite."""
DEVIATION_OF_D = 0.19
"""Standard deviation of d(x) among questions."""
LOOKS_ALIKE = 0.47
"""Correlation between the ranks of two models' answers to a question by length, and by log-probability."""
HARD_IS_LONG = 0.43
"""Correlation of d(x) with the rank of the length."""
LEAST_SPREAD = 0.5
LEAST_SILENT = 0.02
"""Every agent may fail to answer, such as by reaching its limit of tokens."""
EDGES = (1e-4, 1 - 1e-4)
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
SHARES = ("lure_options", "lure_many", "trap", "lure_trap", "repeat_family", "repeat_agent", "repeat_seen")
"""Weights that are probabilities."""


@dataclass(frozen=True, slots=True)
class Agent:
    """Who answers."""

    name: str
    skill: Any
    """Share of questions to which it knows the answer; of those with options it is right on more, by guessing."""
    family: str
    """Family of its model."""
    silent: Any = 0.0
    """Share of questions to which it gives no answer, such as by reaching its limit of tokens."""
    by_kind: tuple[tuple[str, float], ...] = ()
    """Its skill on kinds of questions, if a calibration has measured it."""

    def on(self, kind: str) -> Agent:
        """Return the agent with its skill on questions of a kind; itself if that is unknown.

        >>> Agent("fast", 0.6, "gpt", by_kind=(("yes/no", 0.7),)).on("yes/no").skill
        0.7
        """
        return next((replace(self, skill=skill, by_kind=()) for name, skill in self.by_kind if name == kind), self)


@dataclass(frozen=True, slots=True)
class Opinion:
    """One answer. Quantiles are ranks from 0 to 1 within the agent's own answers; None if unknown."""

    agent: Agent
    group: Any
    """Number of the group of equal answers, from 0; −1 without an answer."""
    length: Any = None
    logprob: Any = None
    """Of the answer itself if it is direct, else the mean over the text."""
    direct: Any = False
    """Whether it is an answer and little else, without reasoning."""
    stated: Any = True
    saw_proposal: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """A question and the opinions so far, in order."""

    opinions: Sequence[Opinion] = ()
    plausible: Any = 0
    """Number of plausible answers: 2 for yes or no, the number of options, 0 for many."""
    difficulty: Any = None
    """d(x); None if unknown."""


@dataclass(frozen=True, slots=True)
class Judgment:
    """What a belief says about a state."""

    leader: Any
    """Number of the leading group; −1 if there is no answer."""
    p: Any
    """Probability that the leading answer is right."""
    _belief: Belief
    _opinions: Sequence[Opinion]
    _right: Sequence[Sequence[Any]]
    """Weight of "opinion i is right" at each difficulty; 0 if an earlier opinion has the same group."""
    _none: Sequence[Any]
    """Weight of "no answer is right" at each difficulty."""
    _total: Any
    _ease: Any
    _spread: float
    _guess: Any

    def q(self, agent: Agent) -> Any:
        """Return the probability that this agent, asked independently, would be right."""
        belief, opinions = self._belief, self._opinions
        chances = belief.chances(agent, [self._ease - self._spread * node for node in NODES], 0.0, self._guess)
        rights = [answers * right for answers, right in chances]
        chance, earlier = belief.repeats(agent, opinions)
        mass: Any = sum(r * w for r, w in zip(rights, self._none, strict=True))
        repeated: Any = 0.0
        for weights, opinion in zip(self._right, opinions, strict=True):
            mass = mass + sum(r * w for r, w in zip(rights, weights, strict=True))
            if chance:
                share = sum(_equal(opinion.group, opinions[i].group) for i in earlier) / len(earlier)
                repeated = repeated + share * sum(weights)
        q = (1 - belief.weights["trap"]) * ((1 - chance) * mass + chance * repeated) / self._total
        return _sigmoid(belief.weights["q_offset"] + _logit(q, EDGES))


@dataclass(frozen=True)
class Belief:
    """The fitted weights.

    >>> belief = Belief.load()
    >>> fast, second = Agent("fast", 0.6, "gpt"), Agent("second", 0.6, "gemini")
    >>> agree = belief.judge(State([Opinion(fast, 0), Opinion(second, 0)], plausible=10))
    >>> differ = belief.judge(State([Opinion(fast, 0), Opinion(second, 1)], plausible=10))
    >>> agree.p > 0.8 > 0.6 > differ.p
    True
    """

    weights: Mapping[str, float]
    about: Mapping[str, Any] = field(default_factory=dict)

    def judge(self, state: State) -> Judgment:
        """Return the leading group and the probability that it is right."""
        weights, opinions = self.weights, state.opinions
        ease = self._ease(state)
        spread = self.spread(state)
        guess = chance_level(state.plausible)
        density: list[Any] = list(DENSITY)
        rights, chances = [], []
        for j, opinion in enumerate(opinions):
            own = self.own(opinion)
            found = self.chances(opinion.agent, [ease - spread * node for node in NODES], own, guess)
            rights.append([right for _, right in found])
            silent = 1.0 * (opinion.group < 0)
            density = [w * (a + silent * (1 - 2 * a)) for w, (a, _) in zip(density, found, strict=True)]
            chance, earlier = self.repeats(opinion.agent, opinions[:j], opinion.saw_proposal)
            same = [_equal(opinion.group, each.group) for each in opinions[:j]]
            echo = chance * sum(same[i] for i in earlier) / max(len(earlier), 1)
            chances.append((chance, echo, same))
        variety = self.variety(state.plausible)
        right = []
        leader: Any = -1
        best: Any = 0.0
        total: Any = 0.0
        for h, opinion in enumerate(opinions):
            first: Any = 1.0 * (opinion.group >= 0)
            for same in chances[h][2]:
                first = first * (1 - same)
            likelihoods = self._likelihoods(h, opinions, density, rights, chances, variety)
            right.append([first * value for value in likelihoods])
            mass = sum(right[-1])
            total = total + mass
            better = 1 * (mass > best * (1 + TIE))
            best = best + better * (mass - best)
            leader = leader + better * (opinion.group - leader)
        none = self._likelihoods(None, opinions, density, rights, chances, variety)
        trap = self._trapped(opinions, chances) * sum(density)
        total = (total + sum(none)) * (1 - weights["trap"]) + trap * weights["trap"]
        best = best * (1 - weights["trap"])
        p = _sigmoid(weights["p_offset"] + _logit(best / total, EDGES))
        return Judgment(leader, p * (leader >= 0), self, opinions, right, none, total, ease, spread, guess)

    def strength(self, skill: Any) -> Any:
        """Return the logit of being right on a question of average difficulty, for the share of right answers."""
        return _strength(skill / (1 - self.weights["trap"]), self.weights["spread"])

    def chances(self, agent: Agent, eases: Sequence[Any], own: Any, guess: Any) -> list[tuple[Any, Any]]:
        """Return the probabilities that an agent answers, and that its answer is right, at each ease of a question.

        Args:
            agent: the agent. Over all questions it gives an answer on 1 − `silent` and knows the answer on `skill`.
            eases: shifts of both logits by the question.
            own: further shift of the second logit, by the looks of the answer.
            guess: probability that a guess is right.
        """
        knows = self.strength(agent.skill)
        answers = _strength(1 - np.maximum(agent.silent, LEAST_SILENT), self.weights["spread"])
        # σ(knows + ease) / σ(answers + ease), as odds
        ratio = _exp(np.minimum(knows - answers, -0.1))
        looks = _exp(own) / (1 - ratio)
        found = []
        for ease in eases:
            odds = (_exp(knows + ease) + ratio) * looks
            found.append((_sigmoid(answers + ease), guess + (1 - guess) * odds / (1 + odds)))
        return found

    def repeats(
        self, agent: Agent, earlier: Sequence[Opinion], saw_proposal: bool = False
    ) -> tuple[float, Sequence[int]]:
        """Return the probability that an agent repeats an earlier opinion, and the numbers of those."""
        if not earlier:
            return 0.0, ()
        if saw_proposal:
            return self.weights["repeat_seen"], (0,)
        if found := [i for i, each in enumerate(earlier) if each.agent.name == agent.name]:
            return self.weights["repeat_agent"], found
        found = [i for i, each in enumerate(earlier) if each.agent.family == agent.family]
        return (self.weights["repeat_family"] if found else 0.0), found

    def chance_to_repeat(self, agent: Agent, asked: Mapping[str, str]) -> float:
        """Return the probability that an agent repeats one of the agents that were asked, {name: family}."""
        if agent.name in asked:
            return self.weights["repeat_agent"]
        return self.weights["repeat_family"] if agent.family in asked.values() else 0.0

    def spread(self, state: State) -> float:
        """Return the standard deviation of the difficulty that remains, given what is known about the question."""
        weights = self.weights
        lengths = sum(opinion.length is not None for opinion in state.opinions)
        logprobs = sum(opinion.logprob is not None for opinion in state.opinions)
        by_d = 0.0 if state.difficulty is None else weights["hard"] * DEVIATION_OF_D
        by_length = weights["long_hard"] * math.sqrt(lengths / _alike(lengths) / 3)  # a rank has the variance 1/3
        by_logprob = weights["sure_easy"] * math.sqrt(logprobs / _alike(logprobs) / 3)
        known = by_d**2 + by_length**2 + by_logprob**2 + 2 * HARD_IS_LONG * by_d * by_length
        return math.sqrt(max(weights["spread"] ** 2 - known, LEAST_SPREAD**2))

    def _ease(self, state: State) -> Any:
        """Return the shift of all logits by d(x) and by the looks of all answers."""
        weights = self.weights
        lengths = [_centred(each.length) for each in state.opinions if each.length is not None]
        logprobs = [_centred(each.logprob) for each in state.opinions if each.logprob is not None]
        shift: Any = 0.0 if state.difficulty is None else weights["hard"] * (state.difficulty - weights["usual"])
        for name, values in (("long_hard", lengths), ("sure_easy", logprobs)):
            if values:
                shift = shift + weights[name] * sum(values) / _alike(len(values))
        return shift

    def own(self, opinion: Opinion) -> Any:
        """Return the shift of an opinion's own logit by its looks."""
        weights = self.weights
        sure = weights["sure"] + opinion.direct * (weights["sure_direct"] - weights["sure"])
        shift = weights["long"] * _centred(opinion.length) + sure * _centred(opinion.logprob)
        return shift + weights["unstated"] * (1 - opinion.stated)

    def variety(self, plausible: Any) -> Any:
        """Return how many wrong answers there are in effect: large if two wrong answers are seldom equal."""
        options = 1.0 * (plausible > 1)
        chance = options / (1 + options * (plausible - 2))  # 1 for two plausible answers, 0 for many
        lure = self.weights["lure_options"] * options + self.weights["lure_many"] * (1 - options)
        equal = chance + (1 - chance) * lure
        return (1 - equal) / equal + 1e-6

    def _trapped(self, opinions: Sequence[Opinion], chances: Sequence[Any]) -> Any:
        """Return the likelihood of all opinions if no agent can be right."""
        equal = self.weights["lure_trap"]
        variety = (1 - equal) / equal
        value: Any = 1.0
        before: Any = 0.0
        for opinion, (chance, echo, same) in zip(opinions, chances, strict=True):
            alike = sum(same)
            answered = 1.0 * (opinion.group >= 0)
            choice = (alike + (alike == 0) * variety) / (before + variety)
            value = value * (echo + (1 - chance) * answered * choice + (1 - answered))
            before = before + answered
        return value

    @staticmethod
    def _likelihoods(
        h: int | None,
        opinions: Sequence[Opinion],
        density: Sequence[Any],
        rights: Sequence[Any],
        chances: Sequence[Any],
        variety: Any,
    ) -> list[Any]:
        """Return the likelihood of all opinions at each difficulty, if that of number `h` is right, or none is."""
        values = list(density)
        wrong: Any = 0.0
        for j, (right, (chance, echo, same)) in enumerate(zip(rights, chances, strict=True)):
            group = opinions[j].group
            equal: Any = 0.0 if h is None else _equal(group, opinions[h].group)
            alike = sum(same)
            answered = 1.0 * (group >= 0)
            # the next wrong answer is one of the earlier wrong ones, each with equal weight, or a new one
            choice = (alike + (alike == 0) * variety) / (wrong + variety)
            free = (1 - chance) * answered
            constant = echo + free * (1 - equal) * choice + (1 - answered)
            slope = free * (equal - (1 - equal) * choice)
            values = [value * (constant + slope * r) for value, r in zip(values, right, strict=True)]
            wrong = wrong + answered * (1 - equal)
        return values

    def to_dict(self) -> dict[str, Any]:
        """Return the content of a saved file."""
        return {
            "format": FORMAT,
            "weights": {name: round(float(self.weights[name]), 4) for name in WEIGHTS},
            "about": dict(self.about),
        }

    @classmethod
    def from_dict(cls, raw: Any, name: str = "belief") -> Belief:
        """Read what `to_dict` wrote; raises InputError if it has another format or is invalid."""
        check_format(
            raw.get("format") if isinstance(raw, dict) else None, FORMAT, name, "run `odar calibrate` again"
        )
        weights = raw.get("weights")
        if not isinstance(weights, dict) or set(weights) != set(WEIGHTS):
            raise InputError(f"{name}: the weights must be {', '.join(WEIGHTS)}")
        if bad := [key for key, value in weights.items() if not _is_number(value)]:
            raise InputError(f"{name}: the weight {bad[0]} must be a number, got {weights[bad[0]]!r}")
        return cls(weights, raw.get("about", {}))

    @classmethod
    def load(cls) -> Belief:
        """Return the shipped belief."""
        return _shipped()


def _strength(skill: Any, spread: float) -> Any:
    """Return the x for which the mean of σ(x − difficulty) is the skill."""
    if not isinstance(skill, np.ndarray):
        return _strength_of_number(float(skill), spread)
    return _solved(_logit(skill, SKILL_RANGE), spread)


@lru_cache(maxsize=4096)
def _strength_of_number(skill: float, spread: float) -> float:
    return float(_solved(_logit(skill, SKILL_RANGE), spread))


def _solved(logit: Any, spread: float) -> Any:
    target = _sigmoid(logit)
    x = logit * math.sqrt(1 + math.pi * spread**2 / 8)
    for _ in range(3):  # Newton's method
        shares = [_sigmoid(x - spread * node) for node in NODES]
        mean: Any = sum(weight * share for weight, share in zip(DENSITY, shares, strict=True))
        slope: Any = sum(weight * share * (1 - share) for weight, share in zip(DENSITY, shares, strict=True))
        x = x - (mean - target) / slope
    return x


def chance_level(plausible: Any) -> Any:
    """Return the probability that a guess is right; 0 if many answers are plausible.

    >>> chance_level(2), chance_level(0)
    (0.5, 0.0)
    """
    options = 1.0 * (plausible > 1)
    return options / (options * plausible + (1 - options))


def without_guesses(right: Any, guess: Any, silent: Any = 0.0) -> Any:
    """Return the share of questions to which the answer is known, given the share that is right.

    >>> float(without_guesses(0.75, guess=0.5))
    0.5
    """
    return np.maximum((right - guess * (1 - silent)) / (1 - guess), SKILL_RANGE[0])


def _equal(a: Any, b: Any) -> Any:
    """Return 1.0 where both are the same group of answers, else 0.0."""
    return 1.0 * (a == b) * (a >= 0)


def _centred(quantile: Any) -> Any:
    """Return a quantile on the scale from −1 to 1, and 0 if it is unknown."""
    return 0.0 if quantile is None else 2 * quantile - 1


def _alike(number: int) -> float:
    """Return by what a sum of ranks is divided to predict what they have in common."""
    return 1 + (number - 1) * LOOKS_ALIKE


def _exp(x: Any) -> Any:
    return np.exp(x) if isinstance(x, np.ndarray) else math.exp(x)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + _exp(-x))


def _logit(p: Any, ends: tuple[float, float]) -> Any:
    """Return the logit of a probability, clipped to a range."""
    low, high = ends
    if isinstance(p, np.ndarray):
        p = np.clip(p, low, high)
        return np.log(p / (1 - p))
    p = min(high, max(low, p))
    return math.log(p / (1 - p))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


@cache
def shipped_file() -> dict[str, Any]:
    """Return the content of the shipped file: weights, transitions and how they were fitted."""
    text = resources.files("odar.policy").joinpath("belief.json").read_text("utf-8")
    return dict(json.loads(text))


@cache
def _shipped() -> Belief:
    return Belief.from_dict(shipped_file(), "belief.json")
