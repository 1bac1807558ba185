"""What a fusion rule believes of each answer, and how well that agrees with what was right.

A rule is right or wrong on a question: a few hundred of them hardly tell two rules apart. How much weight it gave
the right answer tells far more of each question.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from odar.calibration.votes import Array, Votes

_STEPS, _CLOSE = 12, 0.01
"""Of Newton's method for κ, at most, and the relative change that ends it: the likelihood is flat there."""
_LEAST, _MOST = 0.01, 100.0
"""Bounds of κ: where a rule is never wrong, or no better than chance, there is no end to it."""
_FLOOR = 1e-6
"""The least probability that the right answer is given: one question must not decide."""


def log_masses(votes: Votes, beta: float, skills: Array) -> Array:
    """−β·F(a) = log Σ w·exp(−β·F̃) of each candidate's answer (SPEC 5.10); −min F̃ for β = ∞; −∞ where none is.

    >>> one = Votes(np.array([[-1.0, -1.0, -2.0]]), np.array([[0, 0, 1]]), np.zeros((1, 3), dtype=bool))
    >>> log_masses(one, 1.0, np.ones(3)).round(2).tolist(), log_masses(one, np.inf, np.ones(3)).tolist()
    ([[1.69, 1.69, 2.0]], [[1.0, 1.0, 2.0]])
    """
    own = np.where(votes.present, -np.nan_to_num(votes.energy, nan=0.0), -np.inf)  # as `votes.fuse` has it
    each, join = own, cast(Callable[[Array, Array], Array], np.maximum)
    if np.isfinite(beta):
        with np.errstate(divide="ignore"):  # a source of no skill has no mass
            each, join = np.log(skills) + np.where(votes.present, beta * _finite(own), -np.inf), np.logaddexp
    masses = each.copy()
    for one in range(each.shape[1]):  # the columns are few, the rows many
        for other in range(one + 1, each.shape[1]):
            same = votes.present[:, one] & (votes.groups[:, one] == votes.groups[:, other])
            masses[same, one] = join(masses[same, one], each[same, other])
            masses[same, other] = join(masses[same, other], each[same, one])
    return np.asarray(masses)


def log_likelihood(votes: Votes, beta: float, skills: Array) -> Array:
    """The log-probability that a rule gives to what is right, for each question; 0 where no candidate is.

    An answer's probability is its mass to the power κ, in proportion. κ is fitted: a rule chooses the same whatever
    it is, so it must not be what tells two rules apart.

    >>> groups, right = np.array([[0, 0, 1], [0, 0, 1]]), np.array([[True, True, False], [False, False, True]])
    >>> log_likelihood(Votes(np.zeros((2, 3)), groups, right), beta=0.0, skills=np.ones(3)).round(1).tolist()
    [-0.7, -0.7]
    """
    out = np.zeros(len(votes))
    answerable = np.asarray((votes.correct & votes.present).any(axis=1))
    if not answerable.any():
        return out
    votes = votes.rows(answerable)
    masses = log_masses(votes, beta, skills)
    height = _finite(masses - masses.max(axis=1, keepdims=True))
    share = votes.present / _sizes(votes)  # the members of a group carry its probability together
    right = votes.correct & votes.present
    kappa = 1.0
    for _ in range(_STEPS):
        weights = share * np.exp(kappa * height)
        mean, spread = _moments(weights, height)
        mean_right, spread_right = _moments(weights * right, height)
        slope, curvature = (mean_right - mean).sum(), (spread - spread_right).sum()
        step = kappa + slope / curvature if curvature > 0 else kappa * (3.0 if slope > 0 else 1 / 3)
        before, kappa = kappa, float(np.clip(np.clip(step, kappa / 3, kappa * 3), _LEAST, _MOST))
        if abs(kappa - before) < _CLOSE * before:
            break
    weights = share * np.exp(kappa * height)
    probability = (weights * right).sum(axis=1) / weights.sum(axis=1)
    out[answerable] = np.log(np.maximum(probability, _FLOOR))
    return out


def _moments(weights: Array, values: Array) -> tuple[Array, Array]:
    """Mean and variance of each row."""
    total = weights.sum(axis=1)
    total = np.where(total > 0, total, 1.0)
    mean = (weights * values).sum(axis=1) / total
    return mean, (weights * values**2).sum(axis=1) / total - mean**2


def _sizes(votes: Votes) -> Array:
    """How many candidates share each one's answer; 1 where there is none."""
    same = (votes.groups[:, :, None] == votes.groups[:, None, :]) & votes.present[:, None, :]
    return np.asarray(np.maximum(1, same.sum(axis=2)), dtype=np.float64)


def _finite(values: Array) -> Array:
    """−∞ as a number that no power brings back."""
    return np.maximum(values, -1e4)
