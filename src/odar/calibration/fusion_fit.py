"""Fits β and skill weights to recorded candidates, by the likelihood of the right answers (SPEC 5.10).

w_m = exp(γ·logit p_m), with p_m the accuracy of source m on the calibration set: γ = 0 weights all sources equally,
a large γ follows the best one alone, so that majority voting and "always the best model" are both special cases.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from odar.policy.arrays import Array, Bools
from odar.policy.rules import Votes, fuse, log_masses

BETAS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, np.inf)
GAMMAS = (0.0, 0.5, 1.0, 2.0, 4.0, 16.0)
FOLDS = 5


@dataclass(frozen=True, slots=True)
class FusionFit:
    """A fitted fusion rule."""

    beta: float
    gamma: float
    skills: Array
    """One per source, the best scaled to 1."""


def skill_weights(votes: Votes, gamma: float) -> Array:
    """w_m = exp(γ·logit p_m), the best source scaled to 1; accuracies are shrunk towards one half (SPEC 5.10b)."""
    sources = np.array(votes.sources or range(votes.groups.shape[1]))
    same = sources[:, None] == sources[None, :]  # columns of one source share their record
    present = same @ votes.present.sum(axis=0)
    right = same @ (votes.correct & votes.present).sum(axis=0)
    share = (right + 1.0) / (present + 2.0)
    logits = np.log(share / (1 - share))
    return np.asarray(np.exp(gamma * (logits - logits.max())))


def fit_fusion(votes: Votes, incumbent: FusionFit | None = None) -> FusionFit:
    """Return the β and γ that make the right answers most likely, of those at least as accurate as the baseline.

    Accuracy alone overfits: of fifty settings some are right a little more often by chance. The likelihood uses the
    weight of the right answer on every question. The baseline is the incumbent, or without one the better of
    majority voting and "always the best source". A fit must be better than an incumbent by two standard errors.
    """
    # Questions whose candidates are all right, or all wrong, do not distinguish rules.
    contested, baseline = votes.rows(_contested(votes)), incumbent or baseline_rule(votes)
    weights = {gamma: skill_weights(votes, gamma) for gamma in GAMMAS}
    least = _right(contested, baseline)
    rules = [FusionFit(beta, gamma, weights[gamma]) for beta in BETAS for gamma in GAMMAS]
    rules = [rule for rule in rules if _right(contested, rule) >= least]
    if not rules or not len(contested):
        return baseline
    scores = [_likelihood(contested, rule) for rule in rules]
    best = int(np.argmax([score.sum() for score in scores]))
    lead = scores[best] - _likelihood(contested, baseline)
    clear = incumbent is None or lead.mean() > 2 * lead.std() / np.sqrt(len(lead))
    return rules[best] if clear else baseline


def _likelihood(votes: Votes, rule: FusionFit) -> Array:
    return log_likelihood(votes, rule.beta, rule.skills)


def _right(votes: Votes, rule: FusionFit) -> int:
    """Return on how many questions a rule is right."""
    return int(votes.correct[np.arange(len(votes)), fuse(votes, rule.beta, rule.skills)].sum())


def baseline_rule(votes: Votes) -> FusionFit:
    """Return the better of majority voting and "always the best source" on these questions."""
    plain = [FusionFit(0.0, gamma, skill_weights(votes, gamma)) for gamma in (0.0, max(GAMMAS))]
    return max(plain, key=lambda rule: _right(votes, rule))


def _contested(votes: Votes) -> Bools:
    """Questions with a right and a wrong candidate."""
    right = (votes.correct & votes.present).any(axis=1)
    wrong = (~votes.correct & votes.present).any(axis=1)
    return np.asarray(right & wrong)


_STEPS, _CLOSE = 12, 0.01
"""Most steps of Newton's method for κ, and the relative change that ends it: the likelihood is flat there."""
_LEAST, _MOST = 0.01, 100.0
"""Bounds of κ, which diverges if a rule is never wrong or no better than chance."""
_NONE = -1e4
"""Finite substitute for −∞."""
_FLOOR = 1e-6
"""The least probability of a right answer, so that one question does not decide."""


def log_likelihood(votes: Votes, beta: float, skills: Array) -> Array:
    """Return the log-probability that a rule gives to what is right, for each question; 0 if no candidate is.

    An answer's probability is proportional to its mass to the power κ. κ does not change what a rule chooses, so it
    is fitted for each rule.

    >>> groups, right = np.array([[0, 0, 1], [0, 0, 1]]), np.array([[True, True, False], [False, False, True]])
    >>> log_likelihood(Votes(np.zeros((2, 3)), groups, right), beta=0.0, skills=np.ones(3)).round(1).tolist()
    [-0.7, -0.7]
    """
    out = np.zeros(len(votes))
    answerable = np.asarray((votes.correct & votes.present).any(axis=1))
    if not answerable.any():
        return out
    votes = votes.rows(answerable)
    masses = log_masses(votes.ballot(beta, skills))
    height = np.maximum(masses - masses.max(axis=1, keepdims=True), _NONE)
    share = _shares(votes)
    right = share * votes.correct
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
    probability = (right * power).sum(axis=1) / (share * power).sum(axis=1)
    out[answerable] = np.log(np.maximum(probability, _FLOOR))
    return out


def _moments(weights: Array, values: Array) -> tuple[Array, Array]:
    """Mean and variance of each question."""
    total = weights.sum(axis=1)
    total = np.where(total > 0, total, 1.0)
    weighted = weights * values
    mean = weighted.sum(axis=1) / total
    return mean, (weighted * values).sum(axis=1) / total - mean**2


def _shares(votes: Votes) -> Array:
    """(N, M) one over the number of candidates with the same answer, Σ s: they carry its probability together."""
    same = (votes.similarities * votes.present[:, None, :]).sum(axis=2)
    return np.where(votes.present, 1.0 / np.maximum(same, 1.0), 0.0)
