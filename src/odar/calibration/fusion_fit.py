"""Recorded candidates → β and skill weights, by the likelihood of what was right (SPEC 5.10).

w_m = exp(γ·logit p_m), with p_m the accuracy of source m on the calibration set: γ = 0 trusts all alike, a large γ
follows the best one alone, so that majority voting and "always the best model" are both in reach.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from odar.calibration.belief import log_likelihood
from odar.policy.rules import Array, Bools, Ints, Votes, fuse

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


@dataclass(frozen=True, slots=True)
class CrossFit:
    """What a fitted rule does to questions it has not seen."""

    winners: Ints
    """The winning column of each question, chosen by a rule fitted without it."""
    plain: Ints
    """The same by the better of majority voting and "always the best source" on the other folds."""
    energy: Array
    """The aligned energies those rules saw."""


def standardize(energy: Array, fitted_on: Bools | slice) -> Array:
    """Each source's energies as z-scores by the mean and deviation of some of the questions (SPEC 5.5)."""
    known = energy[fitted_on]
    count = np.maximum(1, np.isfinite(known).sum(axis=0))  # a source without any energy stays without
    mean = np.nansum(known, axis=0) / count
    deviation = np.sqrt(np.nansum((known - mean) ** 2, axis=0) / count)
    return np.asarray((energy - mean) / np.where(deviation > 0, deviation, 1.0))


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
    """The β and γ under which what was right is most likely, of those that are right as often as the holder.

    Accuracy alone overfits: of fifty settings some are right a little more often by luck. The likelihood looks at
    how much weight the right answer had on every question. The holder is the incumbent, or without one the better
    of majority voting and "always the best source". From an incumbent, a fit must be apart by two standard errors.
    """
    # Where all candidates are right, or all wrong, every rule does the same: only the others tell rules apart.
    contested, holder = votes.rows(_contested(votes)), incumbent or plain_rule(votes)
    weights = {gamma: skill_weights(votes, gamma) for gamma in GAMMAS}
    least = _right(contested, holder)
    rules = [FusionFit(beta, gamma, weights[gamma]) for beta in BETAS for gamma in GAMMAS]
    rules = [rule for rule in rules if _right(contested, rule) >= least]
    if not rules or not len(contested):
        return holder
    scores = [_likelihood(contested, rule) for rule in rules]
    best = int(np.argmax([score.sum() for score in scores]))
    lead = scores[best] - _likelihood(contested, holder)
    clear = incumbent is None or lead.mean() > 2 * lead.std() / np.sqrt(len(lead))
    return rules[best] if clear else holder


def _likelihood(votes: Votes, rule: FusionFit) -> Array:
    return log_likelihood(votes, rule.beta, rule.skills)


def _right(votes: Votes, rule: FusionFit) -> int:
    """On how many questions it is right."""
    return int(votes.correct[np.arange(len(votes)), fuse(votes, rule.beta, rule.skills)].sum())


def plain_rule(votes: Votes) -> FusionFit:
    """The better of majority voting and "always the best source" on these questions."""
    plain = [FusionFit(0.0, gamma, skill_weights(votes, gamma)) for gamma in (0.0, max(GAMMAS))]
    return max(plain, key=lambda rule: _right(votes, rule))


def _contested(votes: Votes) -> Bools:
    """Questions with a right and a wrong candidate."""
    right = (votes.correct & votes.present).any(axis=1)
    wrong = (~votes.correct & votes.present).any(axis=1)
    return np.asarray(right & wrong)


def cross_fit(votes: Votes, seed: int, folds: int = FOLDS) -> CrossFit:
    """Fit on all folds but one, choose on that one, and so on round: no question meets a rule that knows it."""
    fold = np.random.default_rng(seed).permutation(len(votes)) % folds
    winners, plain = (np.zeros(len(votes), dtype=np.int64) for _ in range(2))
    energy = np.zeros_like(votes.energy)
    for held_out in range(folds):
        test, train = fold == held_out, fold != held_out
        aligned = standardize(votes.energy, train)
        seen = replace(votes, energy=aligned)
        holder, fit = plain_rule(seen.rows(train)), fit_fusion(seen.rows(train))
        winners[test] = fuse(seen.rows(test), fit.beta, fit.skills)
        plain[test] = fuse(seen.rows(test), holder.beta, holder.skills)
        energy[test] = aligned[test]
    return CrossFit(winners, plain, energy)
