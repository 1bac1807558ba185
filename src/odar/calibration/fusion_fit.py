"""Recorded candidates → β and skill weights, chosen by accuracy on questions they were not fitted to (SPEC 5.10).

w_m = exp(γ·logit p_m), with p_m the accuracy of source m on the calibration set: γ = 0 trusts all alike, a large γ
follows the best one alone, so that majority voting and "always the best model" are both in reach.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from odar.calibration.votes import Array, Bools, Ints, Votes, fuse

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
    """w_m = exp(γ·logit p_m), scaled so that the best source has 1. Accuracies are shrunk towards one half."""
    present = votes.present.sum(axis=0)
    right = (votes.correct & votes.present).sum(axis=0)
    share = (right + 1.0) / (present + 2.0)
    logits = np.log(share / (1 - share))
    return np.asarray(np.exp(gamma * (logits - logits.max())))


def fit_fusion(votes: Votes, betas: tuple[float, ...] = BETAS, gammas: tuple[float, ...] = GAMMAS) -> FusionFit:
    """The β and γ that score best, if they beat majority voting and the best source by more than chance would.

    Choosing among settings overfits a little. So the winner must lead the better of the two plain rules by two
    standard errors of the paired difference, or that plain rule is what is fitted.
    """

    def right(beta: float, gamma: float) -> Array:
        winners = fuse(votes, beta, skill_weights(votes, gamma))
        return np.asarray(votes.correct[np.arange(len(votes)), winners], dtype=np.float64)

    plain = max(((0.0, 0.0), (0.0, max(gammas))), key=lambda pair: right(*pair).mean())
    best = max(((beta, gamma) for beta in betas for gamma in gammas), key=lambda pair: right(*pair).mean())
    lead = right(*best) - right(*plain)
    beta, gamma = best if lead.mean() > 2 * lead.std() / np.sqrt(len(lead)) else plain
    return FusionFit(beta, gamma, skill_weights(votes, gamma))


def cross_fit(votes: Votes, seed: int, folds: int = FOLDS, **grid: tuple[float, ...]) -> CrossFit:
    """Fit on all folds but one, choose on that one, and so on round: no question meets a rule that knows it."""
    fold = np.random.default_rng(seed).permutation(len(votes)) % folds
    winners = np.zeros(len(votes), dtype=np.int64)
    energy = np.zeros_like(votes.energy)
    for held_out in range(folds):
        test, train = fold == held_out, fold != held_out
        aligned = standardize(votes.energy, train)
        seen = Votes(aligned, votes.groups, votes.correct)
        fit = fit_fusion(seen.rows(train), **grid)
        winners[test] = fuse(seen.rows(test), fit.beta, fit.skills)
        energy[test] = aligned[test]
    return CrossFit(winners, energy)
