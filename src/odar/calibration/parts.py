"""Fits of the estimator and of the posterior difficulty, each compared with the one in use on held-out folds.

The estimator is fitted to the user's questions starting from the one in use, and stays near it (SPEC 2.5, 2.6). The
weights of the posterior are fitted to the gain of asking the slow model (SPEC 5.11).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from odar.calibration.bootstrap import Interval, bootstrap_mean, to_plain_data
from odar.calibration.evidence import FastAnswers
from odar.calibration.setup import Setup
from odar.difficulty.estimator import LearnedEstimator
from odar.difficulty.training import MIN_ROWS, cross_predict, fit_features
from odar.policy.arrays import Array, Bools, Ints
from odar.policy.path import Thresholds
from odar.policy.posterior import TERMS, PosteriorDifficulty
from odar.policy.signals import AnswerKind

M = TypeVar("M")
FOLDS = 5
STEPS = 3000
"""Steps of Adam; from the weights in use, more steps change only the third digit of d."""
SPEC_THRESHOLDS = Thresholds(0.3, 0.7)
MIN_ANSWERS = 200
"""Answers of a kind that are needed to fit its weights; quantiles need 30."""
MIN_GAINS = 20
"""Answers with a gain or a loss that are needed: the others do not affect the order."""
PULL = 1000.0
"""Weight of the current posterior weights, in answers: new labels move them slowly."""
MIN_CORRELATION = 0.1
"""Minimum correlation with the gain that is assumed for the weights in use."""


@dataclass(frozen=True, slots=True)
class FittedPart(Generic[M]):
    """A fitted model and its error on held-out items, compared with the model in use."""

    name: str
    model: M | None
    """None if nothing could be fitted."""
    held_out: Array
    """Prediction for each item by a fit without that item; without a fit, that of the model in use."""
    gain: Interval | None
    """Error of the model in use on held-out items minus that of the fitted one."""
    measure: str
    """Name of the error."""
    note: str = ""
    """The reason why nothing could be fitted."""

    @property
    def better(self) -> bool:
        """Whether the low end of its gain is above 0."""
        return self.gain is not None and self.gain.low > 0

    def report(self) -> dict[str, Any]:
        """Return the evidence as plain data."""
        found = {"part": self.name, "measure": self.measure, "gain": to_plain_data(self.gain)}
        return {**found, "better": self.better, "note": self.note}


def paired_gain(errors: Array, errors_in_use: Array) -> Interval:
    """Return the gain of one model over another, paired by item."""
    return bootstrap_mean(errors_in_use - errors, shares=False)


def fold_masks(count: int, seed: int) -> list[Bools]:
    """Divide items at random into FOLDS folds, and return the mask of each.

    >>> np.sum(fold_masks(12, seed=1), axis=0).tolist()
    [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    """
    fold = np.random.default_rng(seed).permutation(count) % FOLDS
    return [fold == number for number in range(min(FOLDS, count))]


def fit_estimator_part(
    fast: FastAnswers,
    in_use: LearnedEstimator | None,
    seed: int = 42,
    thresholds: Thresholds = SPEC_THRESHOLDS,
) -> FittedPart[LearnedEstimator]:
    """Fit weights to these items' d* and measure their gain on held-out folds.

    Weights that put fewer of the held-out items on the path of their d* are not used, even if their error is lower.
    """
    measure = "squared error of d*"

    def unfitted(note: str) -> FittedPart[LearnedEstimator]:
        return FittedPart("estimator", None, fast.prior, None, measure, note)

    needed = math.ceil(MIN_ROWS / 0.8)  # a fit sees four folds of five
    if in_use is None or fast.features is None:
        return unfitted("the estimator in use is not the learned one")
    if len(fast) < needed:
        return unfitted(f"{needed} items are needed, {needed - len(fast)} more")
    target, epochs = fast.target, math.ceil(STEPS * 32 / len(fast))
    held_out = cross_predict(fast.features, target, start=in_use, seed=seed, epochs=epochs)
    right_paths = thresholds.paths(target)
    before, after = (float((thresholds.paths(d) == right_paths).mean()) for d in (fast.prior, held_out))
    if after < before:
        return unfitted(f"the share of right paths would fall from {before:.1%} to {after:.1%}")
    model = fit_features(fast.features, target, start=in_use, seeds=(seed,), epochs=epochs)
    gain = paired_gain((held_out - target) ** 2, (fast.prior - target) ** 2)
    return FittedPart("estimator", model, held_out, gain, measure)


def fit_posterior_part(
    fast: FastAnswers, setup: Setup, in_use: PosteriorDifficulty, prior: Array | None = None, seed: int = 42
) -> FittedPart[PosteriorDifficulty]:
    """Fit weights to these fast answers and measure their gain on held-out folds.

    Args:
        fast: the answers, with the gain of the slow model.
        setup: holds the quantiles that turn signals into ranks.
        in_use: the weights in use.
        prior: d(x), by default that of the estimator in use.
        seed: random seed for the folds.
    """
    prior = fast.prior if prior is None else prior
    fast = replace(fast, signals=replace(fast.signals, prior=prior))
    current = setup.routing_difficulty(in_use, prior, fast)
    measure = "gain of the slow model among the answers asked first"
    if note := _missing_answers(fast):
        return FittedPart("posterior", None, current, None, measure, note)
    held_out = current.copy()
    for test in fold_masks(len(fast), seed):
        model = _fit_posterior(setup, fast.rows(~test), in_use)
        held_out[test] = setup.routing_difficulty(model, prior[test], fast.rows(test))
    gain = paired_gain(ordering_error(held_out, fast.gain), ordering_error(current, fast.gain))
    return FittedPart("posterior", _fit_posterior(setup, fast, in_use), held_out, gain, measure)


def ordering_error(difficulty: Array, gain: Array) -> Array:
    """Return the error of an order by item: it is high for gains that come late. A better order has a lower mean.

    >>> ordering_error(np.array([0.1, 0.9]), np.array([1.0, 1.0])).tolist()
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
    """Return non-negative weights that predict the gain of the slow model best, by least squares.

    Args:
        terms: (n, `TERMS`) of finished answers; NaN if unknown.
        gain: score of the slow model minus score of the fast one.
        weight: of each answer.
        groups: group of each answer, such as a pair of models; answers are compared within a group.
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
        slope = max(float(score @ y) / max(float(score @ score), 1e-12), MIN_CORRELATION * spread)
        pull = PULL * float((x**2).mean())
        square, product = square + pull * np.eye(len(columns)), product + pull * slope * first
    found = _non_negative(square, product)
    if not found.sum() > 0:
        return dict(start or {})
    return {TERMS[i]: round(float(w), 4) for i, w in zip(columns, found / found.sum(), strict=True) if w > 1e-4}


def _non_negative(square: Array, product: Array) -> Array:
    """Return the minimum of ½·w'Sw − p'w with w ≥ 0, coordinate by coordinate."""
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
    """Subtract the mean of the group from each column; unknown values count as average."""
    out = np.zeros_like(values)
    for number in np.unique(group):
        rows = group == number
        part, share = values[rows], weight[rows, None] * np.isfinite(values[rows])
        mean = (np.nan_to_num(part) * share).sum(axis=0) / np.maximum(share.sum(axis=0), 1e-300)
        out[rows] = np.nan_to_num(part - mean)
    return out


def _fit_posterior(setup: Setup, fast: FastAnswers, start: PosteriorDifficulty) -> PosteriorDifficulty:
    """Fit the weights of each kind of answer that has enough of them; the others stay as they are."""
    model = start
    for kind in AnswerKind:
        rows = _finished_answers(fast, kind)
        if rows.sum() >= MIN_ANSWERS * 0.75:
            terms = start.terms(fast.signals.rows(rows), kind, setup.tables)
            weights = fit_weights(terms, fast.gain[rows], start=start.weights[kind.value])
            model = model.with_weights(kind, weights)
    return model


def _finished_answers(fast: FastAnswers, kind: AnswerKind) -> Bools:
    return np.asarray(fast.signals.finished & (fast.signals.kind == kind.value))


def _missing_answers(fast: FastAnswers) -> str:
    """Return which answers are missing for a fit; empty if there are enough."""
    most = max(int(_finished_answers(fast, kind).sum()) for kind in AnswerKind)
    if most < MIN_ANSWERS:
        return f"{MIN_ANSWERS} finished fast answers of one kind are needed, {MIN_ANSWERS - most} more"
    missing = MIN_GAINS - int((fast.gain[fast.signals.finished] != 0).sum())
    needed = f"{MIN_GAINS} answers that the slow model makes right or wrong are needed"
    return f"{needed}, {missing} more" if missing > 0 else ""
