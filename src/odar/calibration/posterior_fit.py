"""The posterior difficulty of one's own fast agent: how often it is wrong, given what it wrote (SPEC 5.11)."""

from __future__ import annotations

import numpy as np

from odar.calibration.evidence import FastAnswers
from odar.calibration.part import Part, compare, folds
from odar.calibration.setup import Setup
from odar.policy.posterior import PosteriorDifficulty
from odar.policy.rules import Array, Bools

FEWEST = 50
"""Fast answers, below which seven coefficients cannot be learned."""
PULL = 25.0
"""Ridge towards the coefficients in use: worth about a hundred answers."""
FEWEST_OF_EACH = 8
"""Right and wrong ones among them."""
MEASURE = "log loss of 'fast answer wrong'"


def fit_posterior_part(
    fast: FastAnswers, setup: Setup, in_use: PosteriorDifficulty, prior: Array | None = None, seed: int = 42
) -> Part[PosteriorDifficulty]:
    """Coefficients for these fast answers, judged on folds they were not fitted to.

    Args:
        fast: the answers and whether they were wrong.
        setup: with the statistics that make z-scores of energies and lengths.
        in_use: the coefficients to beat.
        prior: d(x) in place of the estimator's in use.
        seed: of the folds.
    """
    prior = fast.prior if prior is None else prior
    unsureness, length = setup.scores(fast)
    usable = np.isfinite(unsureness) & np.isfinite(length)
    used = setup.reconsider(prior, setup.look(in_use, prior, fast), fast)
    if why := _missing(fast, usable):
        return Part("posterior", None, used, None, MEASURE, why)
    fold, held_out = folds(len(fast), seed), used.copy()
    for number in range(int(fold.max()) + 1):
        seen, test = usable & (fold != number), usable & (fold == number)
        held_out[test] = setup.look(_fit(setup, prior, fast, seen, in_use), prior[test], fast.rows(test))
    gain = compare(log_loss(held_out, fast.wrong)[usable], log_loss(used, fast.wrong)[usable])
    model = _fit(setup, prior, fast, usable, in_use)
    return Part("posterior", model, setup.reconsider(prior, held_out, fast), gain, MEASURE)


def log_loss(difficulty: Array, wrong: Bools) -> Array:
    """−ln of the chance that was given to what happened.

    >>> log_loss(np.array([0.5]), np.array([True])).round(3).tolist()
    [0.693]
    """
    chance = np.clip(np.where(wrong, difficulty, 1 - difficulty), 1e-6, 1.0)
    return np.asarray(-np.log(chance))


def _fit(
    setup: Setup, prior: Array, fast: FastAnswers, rows: Bools, start: PosteriorDifficulty
) -> PosteriorDifficulty:
    """Coefficients that stay near those in use as far as the answers let them; the intercept is free."""
    some = fast.rows(rows)
    return PosteriorDifficulty(l2=PULL, start=start).fit(
        prior[rows], *setup.scores(some), some.wrong, unanswered=some.unanswered, features=some.features
    )


def _missing(fast: FastAnswers, usable: Bools) -> str:
    """What stands in the way of a fit; empty where nothing does."""
    wrong = fast.wrong[np.isfinite(fast.energy) & np.isfinite(fast.log_tokens)]
    if len(wrong) < FEWEST:
        return f"{FEWEST} fast answers with log-probabilities are needed, {FEWEST - len(wrong)} more"
    fewest = int(min(wrong.sum(), (~wrong).sum()))
    if fewest < FEWEST_OF_EACH:
        kind = "wrong" if wrong.sum() == fewest else "right"
        return f"{FEWEST_OF_EACH} {kind} fast answers are needed, {FEWEST_OF_EACH - fewest} more"
    return "" if usable.sum() >= FEWEST else "the statistics of the fast answers are unknown"
