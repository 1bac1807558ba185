"""The rules that turn scores into a choice (SPEC 5.7, 5.9, 5.10), each a function from arrays to arrays.

A rule sees a `Ballot` and returns one or more keys, the most significant first: the candidate that is highest
by the first key wins, the next keys break ties. The first key is the share of weight each candidate's answer
carries. Rules know nothing of models, prompts or paths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from odar.registry import Registry

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
TIE = 1e-12
"""Answers whose weights differ by less than this share have equal weights: sums are rounded."""


@dataclass(frozen=True, slots=True)
class Ballot:
    """What a rule may look at: one entry per candidate in every array."""

    free_energy: Array
    """F̃, or F where nothing is aligned; lower is better."""
    mean_logprob: Array
    mean_probability: Array
    lowest_window: Array
    """The lowest mean log-prob over any window of tokens: where the candidate was least sure."""
    groups: NDArray[np.int64]
    """Candidates with equal final answers share a number."""
    skills: Array
    """w_m: how much each candidate's model is trusted before it has said anything."""
    beta: float = np.inf


Rule = Callable[[Ballot], tuple[Array, ...]]


def free_energy_rule(ballot: Ballot) -> tuple[Array, ...]:
    """Boltzmann weights of the answers' free energies (SPEC 5.7, 5.10).

    F(a) = −(1/β)·log Σ_{y∈a} w_m·exp(−β·F̃(y)), and the weight of a is in proportion to exp(−β·F(a)). β = ∞ takes
    the best single candidate with the paper's weights exp(−F̃), whatever w_m; β = 0 counts votes, weighted by w_m.
    The lowest F̃ of the winning answer speaks for it.

    >>> ballot = Ballot(np.array([0.5, -1.0]), *[np.zeros(2)] * 3, groups=np.array([0, 1]), skills=np.ones(2))
    >>> free_energy_rule(ballot)[0].round(2).tolist()
    [0.18, 0.82]
    """
    own = -ballot.free_energy
    best = _by_group(own, ballot.groups, max)
    if np.isinf(ballot.beta):
        return _softmax(own), best, own
    with np.errstate(divide="ignore"):  # a model of no skill has no say: log 0 = −∞
        answers = _by_group(np.log(ballot.skills) + ballot.beta * own, ballot.groups, _logsumexp)
    weights = np.exp(answers - answers.max())
    weights[weights >= 1 - TIE] = 1.0
    return _shares(weights, ballot.groups), best, own


def majority(ballot: Ballot) -> tuple[Array, ...]:
    """The answer most candidates gave; among equals, the one that holds the lowest free energy."""
    own = -ballot.free_energy
    votes = _by_group(np.ones(len(own)), ballot.groups, sum)
    return _shares(votes, ballot.groups), _by_group(own, ballot.groups, max), own


def max_confidence(ballot: Ballot) -> tuple[Array, ...]:
    """The candidate with the highest mean token probability."""
    return (_shares(ballot.mean_probability),)


def mean_logprob(ballot: Ballot) -> tuple[Array, ...]:
    """The candidate with the highest mean token log-probability."""
    return (_softmax(ballot.mean_logprob),)


def deepconf(ballot: Ballot) -> tuple[Array, ...]:
    """Votes weighted by confidence where it was lowest, after DeepConf."""
    votes = _by_group(np.exp(ballot.lowest_window), ballot.groups, sum)
    return _shares(votes, ballot.groups), ballot.lowest_window


RULES: Registry[Rule] = Registry(
    "fusion rule",
    {
        "deepconf": "odar.policy.rules:deepconf",
        "fep": "odar.policy.rules:free_energy_rule",
        "majority": "odar.policy.rules:majority",
        "max_confidence": "odar.policy.rules:max_confidence",
        "mean_logprob": "odar.policy.rules:mean_logprob",
    },
    group="odar.fusion_rules",
)
"""Fusion rules by name."""


def _by_group(values: Array, groups: NDArray[np.int64], reduce: Callable[[Sequence[float]], float]) -> Array:
    """Each candidate gets what `reduce` makes of its group.

    Plain Python: for a handful of candidates, numpy's sorting and grouping take ten times as long.
    """
    members: dict[int, list[float]] = {}
    for group, value in zip(numbers := groups.tolist(), values.tolist(), strict=True):
        members.setdefault(group, []).append(value)
    # sorted, so that rounding does not depend on order
    reduced = {group: reduce(sorted(own)) for group, own in members.items()}
    return np.array([reduced[group] for group in numbers])


def _shares(weights: Array, groups: NDArray[np.int64] | None = None) -> Array:
    """Scaled so that the answers' weights sum to 1; members of a group all carry the group's."""
    own = weights.tolist()
    answers = own if groups is None else dict(zip(groups.tolist(), own, strict=True)).values()
    return np.asarray(weights / sum(sorted(answers)), dtype=np.float64)


def _softmax(values: Array) -> Array:
    return _shares(np.exp(values - values.max()))


def _logsumexp(values: Sequence[float]) -> float:
    top = max(values)
    return top if top == -math.inf else top + math.log(sum(math.exp(value - top) for value in values))


@dataclass(frozen=True, slots=True)
class Votes:
    """N questions with up to M candidates each; a column is always the same source, such as one model."""

    energy: Array
    """(N, M) aligned free energies; NaN where a candidate has none."""
    groups: Ints
    """(N, M) equal answers of a row share a number; −1 where there is no candidate."""
    correct: Bools
    """(N, M) whether the candidate is right."""
    sources: tuple[int, ...] = ()
    """(M,) columns of the same source share a number; each its own if left out."""

    def __len__(self) -> int:
        return len(self.groups)

    def rows(self, index: Ints | Bools | slice) -> Votes:
        """Some of the questions."""
        return Votes(self.energy[index], self.groups[index], self.correct[index], self.sources)

    def columns(self, index: list[int]) -> Votes:
        """Some of the sources."""
        return Votes(self.energy[:, index], self.groups[:, index], self.correct[:, index])

    @property
    def present(self) -> Bools:
        """(N, M) where there is a candidate."""
        return self.groups >= 0


def fuse(votes: Votes, beta: float, skills: Array) -> Ints:
    """The winning column of each question by answer free energy (SPEC 5.10).

    >>> votes = Votes(np.array([[-2.0, 0.0, 0.1]]), np.array([[0, 1, 1]]), np.array([[False, True, True]]))
    >>> fuse(votes, beta=np.inf, skills=np.ones(3)).tolist(), fuse(votes, beta=0.0, skills=np.ones(3)).tolist()
    ([0], [1])
    """
    # Candidates are few and questions many: with one candidate of all questions in a row, numpy is twice as fast.
    groups = np.ascontiguousarray(votes.groups.T)
    present, own = groups >= 0, own_weights(votes)
    if np.isinf(beta):
        return np.asarray(own.argmax(axis=0))
    scaled = np.where(present, beta * np.where(present, own, 0.0), -np.inf)
    of_each = np.atleast_2d(skills).T  # a skill for each source, or for each candidate
    weights = of_each * np.exp(scaled - scaled.max(axis=0))  # exp(−∞) = 0: the absent have no weight
    totals = np.where(present, weights, -np.inf)
    for one in range(len(groups)):
        for other in range(one + 1, len(groups)):
            same = present[one] & (groups[one] == groups[other])
            totals[one] += np.where(same, weights[other], 0.0)
            totals[other] += np.where(same, weights[one], 0.0)
    # Among candidates of the heaviest answer the one of lowest energy speaks; between answers of equal weight, too.
    heaviest = totals >= totals.max(axis=0) * (1 - TIE)
    return np.asarray(np.where(heaviest, own, -np.inf).argmax(axis=0))


def own_weights(votes: Votes) -> Array:
    """(M, N) −F̃ of each candidate, −∞ where there is none.

    A candidate without an energy counts as an average one: it votes, but is not preferred.
    """
    energy = np.ascontiguousarray(votes.energy.T)
    return np.where(np.ascontiguousarray(votes.groups.T) >= 0, np.where(np.isnan(energy), 0.0, -energy), -np.inf)


def majority_vote(votes: Votes) -> Ints:
    """The winning column of each question by plain voting, ties by energy."""
    return fuse(votes, 0.0, np.ones(votes.groups.shape[1]))


def accuracy(votes: Votes, winners: Ints) -> float:
    """The share of questions whose winner is right."""
    return float(votes.correct[np.arange(len(votes)), winners].mean())


def oracle(votes: Votes) -> float:
    """The share of questions with at least one right candidate."""
    return float(votes.correct.any(axis=1).mean())
