"""Fusion rules (SPEC 5.7, 5.9, 5.10): functions from the scores of candidates to sort keys.

A rule gets a `Ballot` and returns one or more keys, the most significant first: the candidate with the highest
first key wins, the other keys break ties. The first key is the share of the weight of each candidate's answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from odar.policy.arrays import Array, Ints
from odar.registry import Registry

TIE = 1e-12
"""Relative difference below which two weights are equal, because sums are rounded."""


def _unknown() -> Array:
    return np.array(np.nan)


@dataclass(frozen=True, slots=True)
class Ballot:
    """Input of a rule: arrays over the candidates of one question."""

    free_energy: Array
    """F̃, or F if they are not aligned; lower is better. NaN counts as 0, the mean."""
    groups: Ints
    """Candidates with equal final answers share a number."""
    skills: Array
    """w_m: prior weight of each candidate's model."""
    beta: float = np.inf
    similarity: Array | None = None
    """(n, n) s between the answers, 1 for equal ones (SPEC 5.15); None if `groups` says which are equal."""
    mean_logprob: Array = field(default_factory=_unknown)
    mean_probability: Array = field(default_factory=_unknown)
    lowest_window: Array = field(default_factory=_unknown)
    """The lowest mean log-probability over any window of tokens."""

    @property
    def negative_energy(self) -> Array:
        """−F̃ of each candidate: higher is better."""
        return np.where(np.isnan(self.free_energy), 0.0, -self.free_energy)

    @property
    def s(self) -> Array:
        """(n, n) s between the answers; without similarity, 1 within a group, else 0."""
        return same_answer(self.groups) if self.similarity is None else self.similarity


Rule = Callable[[Ballot], tuple[Array, ...]]


def free_energy_rule(ballot: Ballot) -> tuple[Array, ...]:
    """The Boltzmann weights of the answers' free energies (SPEC 5.7, 5.10).

    F(y) = −(1/β)·log Σ_{y'} s(y, y')·w_m·exp(−β·F̃(y')), and the weight of y is proportional to exp(−β·F(y)). If
    answers are equal (s = 1) or not (s = 0), this is the free energy of the group of equal answers. β = ∞ chooses
    the best single candidate with the paper's weights exp(−F̃) and without w_m; β = 0 counts votes, weighted by w_m
    and s. Of equal answers, the one with the lowest F̃ is chosen.

    >>> free_energy_rule(Ballot(np.array([0.5, -1.0]), np.array([0, 1]), np.ones(2)))[0].round(2).tolist()
    [0.18, 0.82]
    """
    if np.isinf(ballot.beta):
        return _softmax(ballot.negative_energy), ballot.negative_energy
    exponents = ballot.beta * ballot.negative_energy
    return _vote_shares(ballot.skills * np.exp(exponents - exponents.max()), ballot), ballot.negative_energy


def answer_energies(ballot: Ballot) -> Array:
    """F(y) of each candidate's answer (SPEC 5.10), see `free_energy_rule`; NaN for β = 0, where only votes count.

    >>> answer_energies(Ballot(np.array([-1.0, -1.0, -2]), np.array([0, 0, 1]), np.ones(3), 1.0)).round(2).tolist()
    [-1.69, -1.69, -2.0]
    """
    if ballot.beta == 0:
        return np.full(ballot.groups.shape, np.nan)
    if np.isinf(ballot.beta):  # that of the best candidate with an equal answer
        return np.asarray(-np.where(ballot.s == 1.0, ballot.negative_energy, -np.inf).max(axis=1))
    exponents = ballot.beta * ballot.negative_energy
    highest = exponents.max()
    with np.errstate(divide="ignore"):  # log 0 = −∞: a model of no skill
        logs = highest + np.log(_sums(ballot.s, ballot.skills * np.exp(exponents - highest)))
    return np.asarray(-logs / ballot.beta)


def majority(ballot: Ballot) -> tuple[Array, ...]:
    """Prefer the most frequent answer, or the most similar to the others; ties by the lowest free energy."""
    return _vote_shares(np.ones(len(ballot.groups)), ballot), ballot.negative_energy


def max_confidence(ballot: Ballot) -> tuple[Array, ...]:
    """Prefer the candidate with the highest mean token probability."""
    return (ballot.mean_probability / ballot.mean_probability.sum(),)


def mean_logprob(ballot: Ballot) -> tuple[Array, ...]:
    """Prefer the candidate with the highest mean token log-probability."""
    return (_softmax(ballot.mean_logprob),)


def deepconf(ballot: Ballot) -> tuple[Array, ...]:
    """Prefer the answer with the most votes, weighted by the lowest confidence in any window (DeepConf)."""
    return _vote_shares(np.exp(ballot.lowest_window), ballot), ballot.lowest_window


RULES: Registry[Rule] = Registry(
    "fusion rule",
    {
        "deepconf": deepconf,
        "fep": free_energy_rule,
        "majority": majority,
        "max_confidence": max_confidence,
        "mean_logprob": mean_logprob,
    },
    group="odar.fusion_rules",
)
"""Fusion rules by name."""


def winner(keys: Sequence[Array]) -> int:
    """The best candidate by the keys in turn; if all are equal, the first one."""
    best = np.ones(len(keys[0]), dtype=bool)
    for key in keys:
        values = np.where(best, key, -np.inf)
        best &= values >= values.max()
    return int(best.argmax())


def same_answer(groups: Ints) -> Array:
    """(n, n): 1 if two candidates share a group, else 0."""
    return np.equal.outer(groups, groups).astype(np.float64)


def _sums(s: Array, weights: Array) -> Array:
    """Σ s·weight over all candidates, for each of them."""
    return np.asarray(np.einsum("ij,j->i", s, weights))


def _vote_shares(weights: Array, ballot: Ballot) -> Array:
    """The share of weight of each candidate's answer, given the weights of the candidates.

    The shares of the groups sum to 1; each member of a group has the share of the group.
    """
    sums = _sums(ballot.s, weights)
    most = sums.max()
    sums = np.where(sums >= most * (1 - TIE), most, sums)
    members = same_answer(ballot.groups).sum(axis=1)
    return np.asarray(sums / (sums / members).sum())


def _softmax(values: Array) -> Array:
    weights = np.exp(values - values.max())
    return np.asarray(weights / weights.sum())
