"""Fusion rules (SPEC 5.7, 5.9, 5.10): functions from the scores of candidates to sort keys.

A rule gets a `Ballot` and returns one or more keys, the most significant first: the candidate with the highest
first key wins, the other keys break ties. The first key is the share of the weight of each candidate's answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from odar.policy.arrays import Array, Bools, Ints
from odar.registry import Registry

TIE = 1e-12
"""Relative difference below which two weights are equal, because sums are rounded."""


def _nan() -> Array:
    return np.array(np.nan)


@dataclass(frozen=True, slots=True)
class Ballot:
    """Input of a rule.

    The last axis of every array is that of the candidates; arrays over many questions have one more axis before it.
    """

    free_energy: Array
    """F̃, or F if they are not aligned; lower is better. NaN counts as 0, the mean."""
    groups: Ints
    """Candidates with equal final answers share a number; −1 for an absent candidate."""
    skills: Array
    """w_m: prior weight of each candidate's model."""
    beta: float = np.inf
    similarity: Array | None = None
    """(…, n, n) s between the answers, 1 for equal ones (SPEC 5.15); None if `groups` says which are equal."""
    mean_logprob: Array = field(default_factory=_nan)
    mean_probability: Array = field(default_factory=_nan)
    lowest_window: Array = field(default_factory=_nan)
    """The lowest mean log-probability over any window of tokens."""

    @property
    def present(self) -> Bools:
        """Whether there is a candidate."""
        return self.groups >= 0

    @property
    def negative_energy(self) -> Array:
        """−F̃ of each candidate: higher is better."""
        return np.where(np.isnan(self.free_energy), 0.0, -self.free_energy)


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
        return _softmax(ballot.negative_energy, ballot), ballot.negative_energy
    return _vote_shares(ballot.skills * np.exp(_shifted_exponents(ballot)[0]), ballot), ballot.negative_energy


def log_masses(ballot: Ballot) -> Array:
    """−β·F(y) = log Σ s·w_m·exp(−β·F̃) of each candidate; for β = ∞, the highest −F̃ of its group.

    It is −∞ for an absent candidate.

    >>> log_masses(Ballot(np.array([-1.0, -1.0, -2.0]), np.array([0, 0, 1]), np.ones(3), 1.0)).round(2).tolist()
    [1.69, 1.69, 2.0]
    """
    s = _similarities(ballot)
    if np.isinf(ballot.beta):
        return np.asarray(np.where(s == 1.0, ballot.negative_energy[..., None, :], -np.inf).max(axis=-1))
    exponents, highest = _shifted_exponents(ballot)
    with np.errstate(divide="ignore"):  # log 0 = −∞: a model of no skill, or an absent candidate
        return np.asarray(highest + np.log(_weighted_sums(s, ballot.skills * np.exp(exponents))))


def answer_energies(ballot: Ballot) -> Array:
    """F(a) of each candidate's answer (SPEC 5.10), from which `free_energy_rule` computes weights.

    >>> answer_energies(Ballot(np.array([0.5, -1.0]), np.array([0, 1]), np.ones(2), 2.0)).tolist()
    [0.5, -1.0]
    """
    if ballot.beta == 0:  # weights are votes; there is no energy
        return np.full(ballot.groups.shape, np.nan)
    return np.asarray(-log_masses(ballot) / (1.0 if np.isinf(ballot.beta) else ballot.beta))


def majority(ballot: Ballot) -> tuple[Array, ...]:
    """Prefer the most frequent answer, or the most similar to the others; ties by the lowest free energy."""
    return _vote_shares(np.ones(ballot.groups.shape), ballot), ballot.negative_energy


def max_confidence(ballot: Ballot) -> tuple[Array, ...]:
    """Prefer the candidate with the highest mean token probability."""
    weights = np.where(ballot.present, ballot.mean_probability, 0.0)
    return (np.asarray(weights / weights.sum(axis=-1, keepdims=True)),)


def mean_logprob(ballot: Ballot) -> tuple[Array, ...]:
    """Prefer the candidate with the highest mean token log-probability."""
    return (_softmax(ballot.mean_logprob, ballot),)


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


def winners(keys: Sequence[Array], present: Bools) -> Ints:
    """The best candidate of each question by the keys in turn; if all are equal, the first one."""
    for key in keys:
        values = np.where(present, key, -np.inf)
        present = present & (values >= values.max(axis=-1, keepdims=True))
    return np.asarray(present.argmax(axis=-1))


def same_answer(groups: Ints) -> Array:
    """(…, n, n): 1 if two candidates share a group, else 0; an absent candidate (−1) has only zeros."""
    present = (groups >= 0)[..., None]
    return np.asarray((groups[..., :, None] == groups[..., None, :]) & present, dtype=np.float64)


def _similarities(ballot: Ballot) -> Array:
    """s between the present candidates, 0 elsewhere."""
    if ballot.similarity is None:
        return same_answer(ballot.groups)
    return np.where(ballot.present[..., :, None] & ballot.present[..., None, :], ballot.similarity, 0.0)


def _shifted_exponents(ballot: Ballot) -> tuple[Array, Array]:
    """−β·F̃ less the highest of each question, −∞ for absent candidates; and the highest."""
    exponents = np.where(ballot.present, ballot.beta * ballot.negative_energy, -np.inf)
    highest = exponents.max(axis=-1, keepdims=True)
    return exponents - highest, highest


def _weighted_sums(s: Array, weights: Array) -> Array:
    """Σ s·weight over all candidates, for each of them."""
    return np.asarray(np.einsum("...ij,...j->...i", s, weights))


def _vote_shares(weights: Array, ballot: Ballot) -> Array:
    """The share of weight of each candidate's answer, given the weights of the candidates."""
    s = _similarities(ballot)
    sums = _weighted_sums(s, np.where(ballot.present, weights, 0.0))
    most = sums.max(axis=-1, keepdims=True)
    sums = np.where(sums >= most * (1 - TIE), most, sums)
    # The weights of the groups sum to 1; each member of a group has the weight of the group.
    members = (s if ballot.similarity is None else same_answer(ballot.groups)).sum(axis=-1)
    return np.asarray(sums / (sums / np.maximum(members, 1.0)).sum(axis=-1, keepdims=True))


def _softmax(values: Array, ballot: Ballot) -> Array:
    """exp(values) of the present candidates, scaled to sum to 1."""
    values = np.where(ballot.present, values, -np.inf)
    weights = np.exp(values - values.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
