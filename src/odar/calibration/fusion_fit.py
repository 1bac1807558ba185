"""Recorded candidates → β and skill weights, chosen by accuracy on questions they were not fitted to (SPEC 5.10).

w_m = exp(γ·logit p_m), with p_m the accuracy of source m on the calibration set: γ = 0 trusts all alike, a large γ
follows the best one alone, so that majority voting and "always the best model" are both in reach.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from odar.calibration.votes import Array, Bools, Ints, Votes, accuracy, fuse

BETAS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, np.inf)
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
    """The β and γ that score best, if they beat the incumbent by more than chance would.

    Choosing among settings overfits a little. So the best of them must lead the incumbent by two standard errors of
    the paired difference. Without an incumbent, it is the better of majority voting and "always the best source".
    """
    # Where all candidates are right, or all wrong, every rule does the same: only the others tell rules apart.
    contested = votes.rows(_contested(votes))
    weights = {gamma: skill_weights(votes, gamma) for gamma in GAMMAS}
    rules = [FusionFit(beta, gamma, weights[gamma]) for beta in BETAS for gamma in GAMMAS]

    def right(rule: FusionFit) -> Array:
        winners = fuse(contested, rule.beta, rule.skills)
        return np.asarray(contested.correct[np.arange(len(contested)), winners], dtype=np.float64)

    scores = {id(rule): right(rule) for rule in rules}
    holder = incumbent or plain_rule(votes)
    best = max(rules, key=lambda rule: scores[id(rule)].sum())
    lead = scores[id(best)] - right(holder)
    mean, square = lead.sum() / len(votes), (lead**2).sum() / len(votes)
    return best if mean > 2 * np.sqrt((square - mean**2) / len(votes)) else holder


def plain_rule(votes: Votes) -> FusionFit:
    """The better of majority voting and "always the best source" on these questions."""
    plain = [FusionFit(0.0, gamma, skill_weights(votes, gamma)) for gamma in (0.0, max(GAMMAS))]
    return max(plain, key=lambda rule: accuracy(votes, fuse(votes, rule.beta, rule.skills)))


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
        holder = plain_rule(seen.rows(train))
        fit = fit_fusion(seen.rows(train), holder)
        winners[test] = fuse(seen.rows(test), fit.beta, fit.skills)
        plain[test] = fuse(seen.rows(test), holder.beta, holder.skills)
        energy[test] = aligned[test]
    return CrossFit(winners, plain, energy)
