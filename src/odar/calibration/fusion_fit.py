"""Fit of β and skill weights to recorded candidates, by the likelihood of the right answers (SPEC 5.10).

w_m = exp(γ·logit p_m), with p_m the accuracy of source m on the calibration set: γ = 0 weights all sources equally,
and a large γ follows the best one, so majority voting and "always the best source" are both special cases.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from odar.policy.arrays import Array, Bools
from odar.policy.rules import Votes, fuse, log_masses

BETAS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, np.inf)
GAMMAS = (0.0, 0.5, 1.0, 2.0, 4.0, 16.0)
_MAX_NEWTON_STEPS = 12
"""Maximum number of steps of Newton's method for κ."""
_MIN_CHANGE = 0.01
"""Relative change of κ below which Newton's method ends: the likelihood is flat there."""
_MIN_KAPPA, _MAX_KAPPA = 0.01, 100.0
"""Bounds of κ, which diverges if a rule is never wrong or no better than chance."""
_MIN_HEIGHT = -1e4
"""Finite substitute for a log mass of −∞."""
_MIN_PROBABILITY = 1e-6
"""Minimum probability of a right answer, so that one question does not decide."""


@dataclass(frozen=True, slots=True)
class FusionFit:
    """A fitted fusion rule."""

    beta: float
    gamma: float
    skills: Array
    """One per source, the best scaled to 1."""


def skill_weights(votes: Votes, gamma: float) -> Array:
    """Return w_m = exp(γ·logit p_m), scaled to 1 for the best source; p_m is shrunk towards 1/2 (SPEC 5.10b)."""
    sources = np.array(votes.sources or range(votes.groups.shape[1]))
    same = sources[:, None] == sources[None, :]  # columns of one source are counted together
    present = same @ votes.present.sum(axis=0)
    right = same @ (votes.correct & votes.present).sum(axis=0)
    share = (right + 1.0) / (present + 2.0)
    logits = np.log(share / (1 - share))
    return np.asarray(np.exp(gamma * (logits - logits.max())))


def fit_fusion(votes: Votes, incumbent: FusionFit | None = None) -> FusionFit:
    """Return the β and γ that make the right answers most likely, of those at least as accurate as the baseline.

    Accuracy alone overfits: of fifty settings some are right a little more often by chance. The likelihood uses the
    weight of the right answer to every question. The baseline is the incumbent, or else the better of majority
    voting and "always the best source". A fit must be better than an incumbent by two standard errors.
    """
    # Questions whose candidates are all right, or all wrong, do not distinguish rules.
    contested, baseline = votes.rows(_contested(votes)), incumbent or baseline_rule(votes)
    weights = {gamma: skill_weights(votes, gamma) for gamma in GAMMAS}
    rules = [FusionFit(beta, gamma, weights[gamma]) for beta in BETAS for gamma in GAMMAS]
    needed = _count_right(contested, baseline)
    rules = [rule for rule in rules if _count_right(contested, rule) >= needed]
    if not rules or not len(contested):
        return baseline
    likelihoods = [log_likelihood(contested, rule.beta, rule.skills) for rule in rules]
    best = int(np.argmax([each.sum() for each in likelihoods]))
    lead = likelihoods[best] - log_likelihood(contested, baseline.beta, baseline.skills)
    is_better = incumbent is None or lead.mean() > 2 * lead.std() / np.sqrt(len(lead))
    return rules[best] if is_better else baseline


def _count_right(votes: Votes, rule: FusionFit) -> int:
    """Return the number of questions that a rule answers right."""
    return int(votes.correct[np.arange(len(votes)), fuse(votes, rule.beta, rule.skills)].sum())


def baseline_rule(votes: Votes) -> FusionFit:
    """Return the better of majority voting and "always the best source" on these questions."""
    rules = [FusionFit(0.0, gamma, skill_weights(votes, gamma)) for gamma in (0.0, max(GAMMAS))]
    return max(rules, key=lambda rule: _count_right(votes, rule))


def _contested(votes: Votes) -> Bools:
    """Return the mask of the questions with a right and a wrong candidate."""
    right = (votes.correct & votes.present).any(axis=1)
    wrong = (~votes.correct & votes.present).any(axis=1)
    return np.asarray(right & wrong)


def log_likelihood(votes: Votes, beta: float, skills: Array) -> Array:
    """Return the log-probability that a rule gives to the right answer of each question; 0 without one.

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
    height = np.maximum(masses - masses.max(axis=1, keepdims=True), _MIN_HEIGHT)
    share = _shares(votes)
    right = share * votes.correct
    kappa = 1.0
    for _ in range(_MAX_NEWTON_STEPS):
        power = np.exp(kappa * height)
        (mean, spread), (mean_right, spread_right) = (_moments(part * power, height) for part in (share, right))
        slope, curvature = (mean_right - mean).sum(), (spread - spread_right).sum()
        step = kappa + slope / curvature if curvature > 0 else kappa * (3.0 if slope > 0 else 1 / 3)
        before, kappa = kappa, float(np.clip(np.clip(step, kappa / 3, kappa * 3), _MIN_KAPPA, _MAX_KAPPA))
        if abs(kappa - before) < _MIN_CHANGE * before:
            break
    power = np.exp(kappa * height)
    probability = (right * power).sum(axis=1) / (share * power).sum(axis=1)
    out[answerable] = np.log(np.maximum(probability, _MIN_PROBABILITY))
    return out


def _moments(weights: Array, values: Array) -> tuple[Array, Array]:
    """Return the weighted mean and variance of each question."""
    total = weights.sum(axis=1)
    total = np.where(total > 0, total, 1.0)
    weighted = weights * values
    mean = weighted.sum(axis=1) / total
    return mean, (weighted * values).sum(axis=1) / total - mean**2


def _shares(votes: Votes) -> Array:
    """Return (N, M) one over the number of candidates with the same answer, Σ s, which share its probability."""
    same = (votes.similarities * votes.present[:, None, :]).sum(axis=2)
    return np.where(votes.present, 1.0 / np.maximum(same, 1.0), 0.0)
