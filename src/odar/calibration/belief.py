"""What a fusion rule believes of each answer, and how well that agrees with what was right.

A rule is right or wrong on a question: a few hundred of them hardly tell two rules apart. How much weight it gave
the right answer tells far more of each question.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from odar.policy.rules import Array, Votes, own_weights

_STEPS, _CLOSE = 12, 0.01
"""Of Newton's method for κ, at most, and the relative change that ends it: the likelihood is flat there."""
_LEAST, _MOST = 0.01, 100.0
"""Bounds of κ: where a rule is never wrong, or no better than chance, there is no end to it."""
_NONE = -1e4
"""In place of −∞, which no power brings back either."""
_FLOOR = 1e-6
"""The least probability that the right answer is given: one question must not decide."""


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
    height = np.maximum(masses - masses.max(axis=0), _NONE)
    share = _shares(votes)
    right = share * votes.correct.T
    kappa = 1.0
    for _ in range(_STEPS):
        power = np.exp(kappa * height)
        (mean, spread), (mean_right, spread_right) = (_moments(part * power, height) for part in (share, right))
        slope, curvature = (mean_right - mean).sum(), (spread - spread_right).sum()
        step = kappa + slope / curvature if curvature > 0 else kappa * (3.0 if slope > 0 else 1 / 3)
        before, kappa = kappa, float(np.clip(np.clip(step, kappa / 3, kappa * 3), _LEAST, _MOST))
        if abs(kappa - before) < _CLOSE * before:
            break
    power = np.exp(kappa * height)
    probability = (right * power).sum(axis=0) / (share * power).sum(axis=0)
    out[answerable] = np.log(np.maximum(probability, _FLOOR))
    return out


def log_masses(votes: Votes, beta: float, skills: Array) -> Array:
    """−β·F(a) = log Σ w·exp(−β·F̃) of each candidate's answer (SPEC 5.10); −min F̃ for β = ∞; −∞ where none is.

    (M, N), as `votes.fuse` has it: candidates are few, questions many.

    >>> one = Votes(np.array([[-1.0, -1.0, -2.0]]), np.array([[0, 0, 1]]), np.zeros((1, 3), dtype=bool))
    >>> log_masses(one, 1.0, np.ones(3)).T.round(2).tolist(), log_masses(one, np.inf, np.ones(3)).T.tolist()
    ([[1.69, 1.69, 2.0]], [[1.0, 1.0, 2.0]])
    """
    groups, own = np.ascontiguousarray(votes.groups.T), own_weights(votes)
    each, join = own, cast(Callable[[Array, Array], Array], np.maximum)
    if np.isfinite(beta):
        with np.errstate(divide="ignore"):  # a source of no skill has no mass
            weights = np.log(skills)[:, None] + beta * np.where(groups >= 0, own, 0.0)
        each, join = np.where(groups >= 0, weights, -np.inf), np.logaddexp
    masses = each.copy()
    for one in range(len(groups)):
        for other in range(one + 1, len(groups)):
            same = (groups[one] >= 0) & (groups[one] == groups[other])
            if same.any():
                masses[one, same] = join(masses[one, same], each[other, same])
                masses[other, same] = join(masses[other, same], each[one, same])
    return np.asarray(masses)


def _moments(weights: Array, values: Array) -> tuple[Array, Array]:
    """Mean and variance of each question."""
    total = weights.sum(axis=0)
    total = np.where(total > 0, total, 1.0)
    weighed = weights * values
    mean = weighed.sum(axis=0) / total
    return mean, (weighed * values).sum(axis=0) / total - mean**2


def _shares(votes: Votes) -> Array:
    """(M, N) one over the number of candidates with the same answer: they carry its probability together."""
    groups = np.ascontiguousarray(votes.groups.T)
    same = np.array([(groups == group).sum(axis=0) for group in groups])
    return np.asarray(np.where(groups >= 0, 1.0 / same, 0.0))
