"""The rules that turn scores into a choice (SPEC 5.7, 5.9, 5.10), each a function from arrays to arrays.

A rule sees a `Ballot` and returns one or more keys, the most significant first: the candidate that is highest
by the first key wins, the next keys break ties. The first key is the share of weight each candidate's answer
carries. Rules know nothing of models, prompts or paths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from odar.registry import Registry

Array = NDArray[np.float64]


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
    beta: float = np.inf


Rule = Callable[[Ballot], tuple[Array, ...]]


def free_energy_rule(ballot: Ballot) -> tuple[Array, ...]:
    """Boltzmann weights of the answers' free energies (SPEC 5.7, 5.10).

    F(a) = −(1/β)·log Σ_{y∈a} exp(−β·F̃(y)), and the weight of a is in proportion to exp(−β·F(a)). β = ∞ takes
    the best single candidate with the paper's weights exp(−F̃), β = 0 counts votes. The lowest F̃ of the winning
    answer speaks for it.

    >>> ballot = Ballot(np.array([0.5, -1.0]), *[np.zeros(2)] * 3, groups=np.array([0, 1]))
    >>> free_energy_rule(ballot)[0].round(2).tolist()
    [0.18, 0.82]
    """
    own = -ballot.free_energy
    best = _by_group(own, ballot.groups, np.max)
    if np.isinf(ballot.beta):
        return _softmax(own), best, own
    answers = _by_group(ballot.beta * own, ballot.groups, _logsumexp)
    return _shares(np.exp(answers - answers.max()), ballot.groups), best, own


def majority(ballot: Ballot) -> tuple[Array, ...]:
    """The answer most candidates gave; among equals, the one that holds the lowest free energy."""
    own = -ballot.free_energy
    votes = _by_group(np.ones(len(own)), ballot.groups, np.sum)
    return _shares(votes, ballot.groups), _by_group(own, ballot.groups, np.max), own


def max_confidence(ballot: Ballot) -> tuple[Array, ...]:
    """The candidate with the highest mean token probability."""
    return (_shares(ballot.mean_probability),)


def mean_logprob(ballot: Ballot) -> tuple[Array, ...]:
    """The candidate with the highest mean token log-probability."""
    return (_softmax(ballot.mean_logprob),)


def deepconf(ballot: Ballot) -> tuple[Array, ...]:
    """Votes weighted by confidence where it was lowest, after DeepConf."""
    votes = _by_group(np.exp(ballot.lowest_window), ballot.groups, np.sum)
    return _shares(votes, ballot.groups), ballot.lowest_window


RULES: Registry[Rule] = Registry(
    "fusion rule",
    {
        "deepconf": "odar.fusion.rules:deepconf",
        "fep": "odar.fusion.rules:free_energy_rule",
        "majority": "odar.fusion.rules:majority",
        "max_confidence": "odar.fusion.rules:max_confidence",
        "mean_logprob": "odar.fusion.rules:mean_logprob",
    },
    group="odar.fusion_rules",
)
"""Fusion rules by name."""


def _by_group(values: Array, groups: NDArray[np.int64], reduce: Callable[[Array], float]) -> Array:
    """Each candidate gets what `reduce` makes of its group."""
    out = np.empty(len(values))
    for group in np.unique(groups):
        members = groups == group
        out[members] = reduce(np.sort(values[members]))  # sorted, so that rounding does not depend on order
    return out


def _shares(weights: Array, groups: NDArray[np.int64] | None = None) -> Array:
    """Scaled so that the answers' weights sum to 1; members of a group all carry the group's."""
    firsts = slice(None) if groups is None else np.unique(groups, return_index=True)[1]
    return np.asarray(weights / np.sort(weights[firsts]).sum(), dtype=np.float64)


def _softmax(values: Array) -> Array:
    return _shares(np.exp(values - values.max()))


def _logsumexp(values: Array) -> float:
    top = values.max()
    return float(top + np.log(np.exp(values - top).sum()))
