"""Fits the weights of the posterior difficulty to the gain of asking the slow model (SPEC 5.11)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from odar.calibration.evidence import FastAnswers
from odar.calibration.parts import Part, compare, folds
from odar.calibration.setup import Setup
from odar.policy.posterior import TERMS, PosteriorDifficulty
from odar.policy.rules import Array, Bools, Ints
from odar.policy.signals import AnswerKind

FEWEST = 200
"""Answers of a kind that are needed to fit its weights; quantiles need 30."""
FEWEST_GAINS = 20
"""Answers with a gain or a loss that are needed: the others do not affect the order."""
PULL = 1000.0
"""Weight of the weights in use, in answers: new labels move them slowly."""
LEAST_CORRELATION = 0.1
"""The least correlation with the gain that is assumed for the weights in use."""
MEASURE = "gain of the slow model among the answers asked first"


def fit_posterior_part(
    fast: FastAnswers, setup: Setup, in_use: PosteriorDifficulty, prior: Array | None = None, seed: int = 42
) -> Part[PosteriorDifficulty]:
    """Fit weights to these fast answers and judge them on folds they were not fitted to.

    Args:
        fast: the answers and what the slow model gained.
        setup: with the quantiles that turn signals into ranks.
        in_use: the weights to beat.
        prior: d(x) in place of the estimator's in use.
        seed: random seed for the folds.
    """
    prior = fast.prior if prior is None else prior
    fast = replace(fast, signals=replace(fast.signals, prior=prior))
    used = setup.reconsider(prior, setup.look(in_use, prior, fast), fast)
    every = np.ones(len(fast), dtype=bool)
    if why := _missing(fast):
        return Part("posterior", None, used, None, MEASURE, why)
    fold, held_out = folds(len(fast), seed), used.copy()
    for number in range(int(fold.max()) + 1):
        test = fold == number
        model = _fit(setup, fast, ~test, in_use)
        held_out[test] = setup.reconsider(
            prior[test], setup.look(model, prior[test], fast.rows(test)), fast.rows(test)
        )
    gain = compare(misplaced(held_out, fast.gain), misplaced(used, fast.gain))
    return Part("posterior", _fit(setup, fast, every, in_use), held_out, gain, MEASURE)


def misplaced(difficulty: Array, gain: Array) -> Array:
    """The error of an order by item: gains that are asked for late. A better order has a lower mean.

    >>> misplaced(np.array([0.1, 0.9]), np.array([1.0, 1.0])).tolist()
    [0.25, -0.25]
    """
    _, inverse, counts = np.unique(difficulty, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - counts / 2)[inverse] / len(difficulty)
    return np.asarray(-gain * (ranks - 0.5))


def fit_weights(
    terms: Array,
    gain: Array,
    weight: Array | None = None,
    *,
    groups: Ints | None = None,
    only: Collection[str] = TERMS,
    start: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Weights of at least 0 that predict the gain of the slow model best, by least squares.

    Args:
        terms: (n, `TERMS`) of finished answers; NaN where unknown.
        gain: slow right minus fast right.
        weight: of each answer.
        groups: answers are compared within a group, such as a pair of models.
        only: the terms that may get a weight.
        start: weights that the fit is drawn to, as if they were `PULL` answers.
    """
    columns = [i for i, term in enumerate(TERMS) if term in only]
    group = np.zeros(len(terms), dtype=np.int64) if groups is None else groups
    share = np.ones(len(terms)) if weight is None else weight
    x = _centred(terms[:, columns], share, group)
    y = _centred(gain[:, None], share, group)[:, 0]
    square, product = (x * share[:, None]).T @ x, x.T @ (share * y)
    if start is not None:
        first = np.array([start.get(TERMS[i], 0.0) for i in columns])
        score = x @ first
        spread = float(np.sqrt((y @ y) / max(float(score @ score), 1e-12)))
        slope = max(float(score @ y) / max(float(score @ score), 1e-12), LEAST_CORRELATION * spread)
        pull = PULL * float((x**2).mean())
        square, product = square + pull * np.eye(len(columns)), product + pull * slope * first
    found = _non_negative(square, product)
    if not found.sum() > 0:
        return dict(start or {})
    return {TERMS[i]: round(float(w), 4) for i, w in zip(columns, found / found.sum(), strict=True) if w > 1e-4}


def _non_negative(square: Array, product: Array) -> Array:
    """The minimum of ½·w'Sw − p'w with w ≥ 0, coordinate by coordinate."""
    found = np.zeros(len(product))
    diagonal = np.maximum(np.diag(square), 1e-12)
    for _ in range(2000):
        before = found.copy()
        for i in range(len(found)):
            if square[i, i] > 0:
                rest = float(product[i] - square[i] @ found + square[i, i] * found[i])
                found[i] = max(0.0, rest / diagonal[i])
        if np.abs(found - before).max() <= 1e-10 * max(1e-12, found.max()):
            break
    return found


def _centred(values: Array, weight: Array, group: Ints) -> Array:
    """Each column without its mean in the group; what is unknown counts as average."""
    out = np.zeros_like(values)
    for number in np.unique(group):
        rows = group == number
        part, share = values[rows], weight[rows, None] * np.isfinite(values[rows])
        mean = (np.nan_to_num(part) * share).sum(axis=0) / np.maximum(share.sum(axis=0), 1e-300)
        out[rows] = np.nan_to_num(part - mean)
    return out


def _fit(setup: Setup, fast: FastAnswers, rows: Bools, start: PosteriorDifficulty) -> PosteriorDifficulty:
    """Return the weights in use, with those of each kind that has enough answers fitted to them."""
    model = start
    for kind in _kinds(fast, rows):
        some = rows & (fast.signals.kind == kind.value) & fast.signals.finished
        terms = start.terms(fast.signals.rows(some), kind, setup.tables)
        model = model.with_weights(kind, fit_weights(terms, fast.gain[some], start=start.weights[kind.value]))
    return model


def _kinds(fast: FastAnswers, rows: Bools) -> list[AnswerKind]:
    finished = rows & fast.signals.finished
    return [kind for kind in AnswerKind if (finished & (fast.signals.kind == kind.value)).sum() >= FEWEST * 0.75]


def _missing(fast: FastAnswers) -> str:
    """Return what is missing for a fit; empty if nothing is."""
    finished = fast.signals.finished
    counts = {kind: int((finished & (fast.signals.kind == kind.value)).sum()) for kind in AnswerKind}
    most = max(counts.values())
    if most < FEWEST:
        return f"{FEWEST} finished fast answers of one kind are needed, {FEWEST - most} more"
    changed = int((fast.gain[finished] != 0).sum())
    if changed < FEWEST_GAINS:
        needed = f"{FEWEST_GAINS} answers that the slow model makes right or wrong are needed"
        return f"{needed}, {FEWEST_GAINS - changed} more"
    return ""
