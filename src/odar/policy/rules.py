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
    similarity: Array | None = None
    """(n, n) s between the answers, 1 for equal ones (SPEC 5.15); None: they are equal or not, by `groups`."""


Rule = Callable[[Ballot], tuple[Array, ...]]


def free_energy_rule(ballot: Ballot) -> tuple[Array, ...]:
    """Boltzmann weights of the answers' free energies (SPEC 5.7, 5.10).

    F(y) = −(1/β)·log Σ_{y'} s(y, y')·w_m·exp(−β·F̃(y')), and the weight of y is in proportion to exp(−β·F(y)). Where
    answers are equal (s = 1) or not (s = 0), this is the free energy of the group of equal answers. β = ∞ takes the
    best single candidate with the paper's weights exp(−F̃), whatever w_m; β = 0 counts votes, weighted by w_m and s.
    Of equal answers, the one of lowest F̃ is chosen.

    >>> ballot = Ballot(np.array([0.5, -1.0]), *[np.zeros(2)] * 3, groups=np.array([0, 1]), skills=np.ones(2))
    >>> free_energy_rule(ballot)[0].round(2).tolist()
    [0.18, 0.82]
    """
    own = -ballot.free_energy
    best = _best(own, ballot)
    if np.isinf(ballot.beta):
        return _softmax(own), best, own
    with np.errstate(divide="ignore"):  # a model of no skill has no say: log 0 = −∞
        answers = _log_masses(np.log(ballot.skills) + ballot.beta * own, ballot)
    weights = np.exp(answers - answers.max())
    weights[weights >= 1 - TIE] = 1.0
    return _shares(weights, ballot.groups), best, own


def answer_energies(ballot: Ballot) -> Array:
    """F(a) of each candidate's answer (SPEC 5.10), which the weights of `free_energy_rule` come from.

    >>> zeros, ones = np.zeros(2), np.ones(2)
    >>> answer_energies(Ballot(np.array([0.5, -1.0]), zeros, zeros, zeros, np.array([0, 1]), ones, 2.0)).tolist()
    [0.5, -1.0]
    """
    own = -ballot.free_energy
    if np.isinf(ballot.beta):
        return -_by_group(own, ballot.groups, max)
    if ballot.beta == 0:  # weights are votes; there is no energy
        return np.full(len(own), np.nan)
    with np.errstate(divide="ignore"):
        answers = _log_masses(np.log(ballot.skills) + ballot.beta * own, ballot)
    return np.asarray(-answers / ballot.beta)


def majority(ballot: Ballot) -> tuple[Array, ...]:
    """The answer most candidates gave, or the most similar to the others; ties by the lowest free energy."""
    own = -ballot.free_energy
    votes = _votes(np.ones(len(own)), ballot)
    return _shares(votes, ballot.groups), _best(own, ballot), own


def max_confidence(ballot: Ballot) -> tuple[Array, ...]:
    """The candidate with the highest mean token probability."""
    return (_shares(ballot.mean_probability),)


def mean_logprob(ballot: Ballot) -> tuple[Array, ...]:
    """The candidate with the highest mean token log-probability."""
    return (_softmax(ballot.mean_logprob),)


def deepconf(ballot: Ballot) -> tuple[Array, ...]:
    """Votes weighted by confidence where it was lowest, after DeepConf."""
    votes = _votes(np.exp(ballot.lowest_window), ballot)
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


def _best(own: Array, ballot: Ballot) -> Array:
    """The highest −F̃ of each candidate's group; its own if answers are similar to a degree, not equal or not."""
    return own if ballot.similarity is not None else _by_group(own, ballot.groups, max)


def _log_masses(logs: Array, ballot: Ballot) -> Array:
    """Each candidate gets log Σ s·exp(log) over all candidates."""
    if ballot.similarity is None:
        return _by_group(logs, ballot.groups, _logsumexp)
    with np.errstate(divide="ignore"):  # log 0 = −∞: nothing in common
        parts = np.log(ballot.similarity) + logs[None, :]
    # sorted, so that rounding does not depend on order
    return np.array([_logsumexp(sorted(row)) for row in parts.tolist()])


def _votes(weights: Array, ballot: Ballot) -> Array:
    """Each candidate gets Σ s·weight over all candidates; sums that differ by rounding alone are equal."""
    if ballot.similarity is None:
        return _by_group(weights, ballot.groups, sum)
    votes = np.array([sum(sorted(row)) for row in (ballot.similarity * weights[None, :]).tolist()])
    return np.where(votes >= votes.max() * (1 - TIE), votes.max(), votes)


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


def same_answer(groups: Ints) -> Array:
    """(N, M, M) 1 where two candidates of a row share a group; one without a group (−1) is like none."""
    return np.asarray((groups[:, :, None] == groups[:, None, :]) & (groups >= 0)[:, :, None], dtype=np.float64)


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
    similarity: Array | None = None
    """(N, M, M) s between the answers (SPEC 5.15); None: they are equal or not, by `groups`."""

    def __len__(self) -> int:
        return len(self.groups)

    def rows(self, index: Ints | Bools | slice) -> Votes:
        """Some of the questions."""
        similarity = None if self.similarity is None else self.similarity[index]
        return Votes(self.energy[index], self.groups[index], self.correct[index], self.sources, similarity)

    @classmethod
    def join(cls, parts: Sequence[Votes], sources: tuple[int, ...]) -> Votes:
        """The questions of several parts, in order."""
        energy, groups, correct = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("energy", "groups", "correct")
        )
        soft = any(part.similarity is not None for part in parts)
        return cls(energy, groups, correct, sources, np.concatenate([p.overlaps for p in parts]) if soft else None)

    @property
    def overlaps(self) -> Array:
        """(N, M, M) s between the answers."""
        return same_answer(self.groups) if self.similarity is None else self.similarity

    def columns(self, index: list[int]) -> Votes:
        """Some of the sources."""
        similarity = None if self.similarity is None else self.similarity[:, index][:, :, index]
        energy, groups, correct = self.energy[:, index], self.groups[:, index], self.correct[:, index]
        return Votes(energy, groups, correct, similarity=similarity)

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
            s = overlap(votes, groups, one, other)
            totals[one] += s * weights[other]
            totals[other] += s * weights[one]
    # Among candidates of the heaviest answer the one of lowest energy speaks; between answers of equal weight, too.
    heaviest = totals >= totals.max(axis=0) * (1 - TIE)
    return np.asarray(np.where(heaviest, own, -np.inf).argmax(axis=0))


def overlap(votes: Votes, groups: Ints, one: int, other: int) -> Array:
    """(N,) s between the candidates of two columns, 0 where one is absent; `groups` is transposed, for speed."""
    if votes.similarity is None:
        return np.asarray((groups[one] >= 0) & (groups[one] == groups[other]), dtype=np.float64)
    there = (groups[one] >= 0) & (groups[other] >= 0)
    return np.where(there, votes.similarity[:, one, other], 0.0)


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
