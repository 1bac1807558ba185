"""What a recorded pair of models gives: each alone, ODAR at several targets, and the oracle (SPEC 5.13, 8.2).

Every question has a fast and a slow answer. ODAR asks the fast model first; where it escalates, the slow answer is
returned and both calls are paid for. Nothing is fitted to the scores: the posterior is the shipped one, and the
alignment of log-probabilities uses the fast answers alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from odar.calibration.bootstrap import Interval, bootstrap_mean
from odar.errors import InputError
from odar.evals.router_quality import apgr
from odar.policy.posterior import PosteriorDifficulty
from odar.policy.rules import Array, Bools
from odar.policy.signals import QuantileTables, SignalArrays
from odar.recording.schema import Attempt, RecordedItem, recorded_signals, total_cost
from odar.types import Step

TARGETS = (0.25, 0.5, 0.75)
"""Shares of questions that are escalated to the slow model: 1.25, 1.5 and 1.75 calls per question."""


@dataclass(frozen=True, slots=True)
class PairRow:
    """One way to use the two models, per question."""

    name: str
    accuracy: Interval
    gain: Interval
    """Accuracy minus that of the fast model, paired by question."""
    over_random: Interval
    """Accuracy minus what the same share of questions, escalated at random, gives on average."""
    calls: float
    cost_usd: float | None
    """None if a price or a token count is unknown."""
    slow_share: float
    """Share of questions that the slow model answers."""


@dataclass(frozen=True, slots=True)
class PairSummary:
    """The table, and how well each score ranks questions for escalation."""

    rows: list[PairRow]
    apgr: dict[str, float]
    """By single signal, then of the posterior; 0.5 is random. Empty if the slow model is not better."""
    signals: tuple[str, ...]
    """What the posterior could use: signals of the fast answers that differ from answer to answer."""
    items: int


@dataclass(frozen=True, slots=True)
class _Pair:
    """The recorded answers as arrays."""

    fast: Array
    slow: Array
    fast_usd: Array
    slow_usd: Array
    prior: Array


def summarize_pair(items: Sequence[RecordedItem], posterior: PosteriorDifficulty, threshold: float) -> PairSummary:
    """Compare what can be done with the recorded answers of a fast and a slow model.

    Args:
        items: each with a fast answer and at least one slow one, scored.
        posterior: rates each fast answer.
        threshold: τ1: from this prior difficulty on, ODAR escalates by the question alone.

    Raises:
        InputError: no item has both answers.
    """
    found = [(item, _first(item, Step.ANSWER), _first(item, Step.SOLVE)) for item in items]
    triples = [(item, fast, slow) for item, fast, slow in found if fast is not None and slow is not None]
    if not triples:
        raise InputError("no item has a fast and a slow answer")
    both, fast, slow = (list(column) for column in zip(*triples, strict=True))
    pair = _Pair(
        fast=np.array([each.score for each in fast], dtype=float),
        slow=np.array([each.score for each in slow], dtype=float),
        fast_usd=np.array([_cost(each) for each in fast]),
        slow_usd=np.array([_cost(each) for each in slow]),
        prior=np.array([item.difficulty for item in both]),
    )
    scores, single = _posterior_scores(both, fast, posterior)
    none, every = np.zeros(len(both), dtype=bool), np.ones(len(both), dtype=bool)
    rows = [
        _row("always fast", pair, none),
        _row("always slow", pair, every, fast_first=False),
        *([_row(f"ODAR prior (d ≥ {threshold:g})", pair, pair.prior >= threshold)] if pair.prior.std() else []),
        *(_row(f"ODAR posterior, {1 + share:g} calls", pair, _top(scores, share)) for share in TARGETS),
        _row("oracle", pair, pair.slow > pair.fast),
    ]
    better = pair.slow.mean() > pair.fast.mean()
    ranked = {**single, "posterior": scores} if better else {}
    figures = {name: apgr(each, pair.fast, pair.slow) for name, each in ranked.items()}
    return PairSummary(rows, figures, tuple(single), len(both))


def _row(name: str, pair: _Pair, escalated: Bools, *, fast_first: bool = True) -> PairRow:
    right = np.where(escalated, pair.slow, pair.fast)
    paid = np.where(escalated, pair.slow_usd, 0.0) + (pair.fast_usd if fast_first else 0.0)
    share = float(escalated.mean())
    return PairRow(
        name=name,
        accuracy=bootstrap_mean(right),
        gain=bootstrap_mean(right - pair.fast, shares=False),
        over_random=bootstrap_mean(right - pair.fast - share * (pair.slow - pair.fast), shares=False),
        calls=1 + share if fast_first else 1.0,
        cost_usd=None if np.isnan(paid).any() else float(paid.mean()),
        slow_share=share,
    )


def _top(scores: Array, share: float) -> Bools:
    """Mark the questions with the highest scores, this share of them."""
    marked = np.zeros(len(scores), dtype=bool)
    marked[np.argsort(-scores, kind="stable")[: round(share * len(scores))]] = True
    return marked


def _posterior_scores(
    items: Sequence[RecordedItem], fast: Sequence[Attempt], posterior: PosteriorDifficulty
) -> tuple[Array, dict[str, Array]]:
    """Rate each fast answer by its rank among all of them, and by each signal that the file shows.

    An answer that shows nothing is rated by the question.
    """
    answers = [recorded_signals(each, item.difficulty) for item, each in zip(items, fast, strict=True)]
    signals = SignalArrays.of(answers)
    scores = posterior.predict(signals, QuantileTables.of(signals))
    single: dict[str, Array] = {
        "prior": signals.prior,
        "answer log-prob": -signals.answer_logprob,
        "mean log-prob": -signals.mean_logprob,
        "length": signals.length,
        "unstated": (~(signals.stated & signals.finished)).astype(np.float64),
    }
    known = {name: _filled(values) for name, values in single.items() if _varies(values)}
    return np.where(np.isnan(scores), signals.prior, scores), known


def _filled(values: Array) -> Array:
    """The values with their median for what is unknown."""
    return np.where(np.isnan(values), np.nanmedian(values), values)


def _varies(values: Array) -> bool:
    return len(np.unique(values[np.isfinite(values)])) > 1


def _first(item: RecordedItem, step: Step) -> Attempt | None:
    return next((each for each in item.attempts if each.step is step and each.score is not None), None)


def _cost(attempt: Attempt) -> float:
    cost = total_cost([attempt])
    return np.nan if cost is None else cost
