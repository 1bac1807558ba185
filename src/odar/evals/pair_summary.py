"""Results of a recorded pair of models: each alone, ODAR at several targets, and the oracle (SPEC 5.13, 8.2).

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
from odar.evals.statistics import mean_if_known
from odar.policy.arrays import Array, Bools
from odar.policy.posterior import PosteriorDifficulty
from odar.policy.signals import QuantileTables, SignalArrays
from odar.recording.schema import Attempt, RecordedItem, recorded_signals, total_cost
from odar.types import Step

TARGETS = (0.25, 0.5, 0.75)
"""Shares of questions that are escalated to the slow model: 1.25, 1.5 and 1.75 calls per question."""


@dataclass(frozen=True, slots=True)
class PairRow:
    """The figures of one way to use the two models, per question."""

    name: str
    accuracy: Interval
    gain: Interval
    """Accuracy minus that of the fast model, paired by question."""
    over_random: Interval
    """Accuracy minus the mean accuracy of escalating the same share of questions at random."""
    calls: float
    cost_usd: float | None
    """None if a price or a token count is unknown."""
    slow_share: float
    """Share of questions that the slow model answers."""


@dataclass(frozen=True, slots=True)
class PairSummary:
    """The table, and the ranking quality of each signal for escalation."""

    rows: list[PairRow]
    apgr: dict[str, float]
    """APGR of each single signal and of the posterior; 0.5 is random. Empty if the slow model is not better."""
    signals: tuple[str, ...]
    """Signals that the posterior could use: those that differ between the fast answers."""
    items: int


def summarize_pair(items: Sequence[RecordedItem], posterior: PosteriorDifficulty, threshold: float) -> PairSummary:
    """Compare the policies that the recorded answers of a fast and a slow model allow.

    Args:
        items: each with a fast answer and at least one slow one, scored.
        posterior: rates each fast answer.
        threshold: τ1: from this prior difficulty on, ODAR escalates by the question alone.

    Raises:
        InputError: no item has both answers.
    """
    complete, fast_answers, slow_answers = [], [], []
    for item in items:
        first, second = _first(item, Step.ANSWER), _first(item, Step.SOLVE)
        if first is not None and second is not None:
            complete.append(item)
            fast_answers.append(first)
            slow_answers.append(second)
    if not complete:
        raise InputError("no item has a fast and a slow answer")
    fast, slow = (np.array([each.score for each in side], dtype=float) for side in (fast_answers, slow_answers))
    fast_usd, slow_usd = (np.array([_cost(each) for each in side]) for side in (fast_answers, slow_answers))
    prior = np.array([item.difficulty for item in complete])
    scores, single = _posterior_scores(complete, fast_answers, posterior)

    def row(name: str, escalated: Bools, *, fast_first: bool = True) -> PairRow:
        right, share = np.where(escalated, slow, fast), float(escalated.mean())
        paid = np.where(escalated, slow_usd, 0.0) + (fast_usd if fast_first else 0.0)
        return PairRow(
            name=name,
            accuracy=bootstrap_mean(right),
            gain=bootstrap_mean(right - fast, shares=False),
            over_random=bootstrap_mean(right - fast - share * (slow - fast), shares=False),
            calls=1 + share if fast_first else 1.0,
            cost_usd=mean_if_known(paid),
            slow_share=share,
        )

    rows = [
        row("always fast", np.zeros(len(complete), dtype=bool)),
        row("always slow", np.ones(len(complete), dtype=bool), fast_first=False),
        *([row(f"ODAR prior (d ≥ {threshold:g})", prior >= threshold)] if prior.std() else []),
        *(row(f"ODAR posterior, {1 + share:g} calls", _top(scores, share)) for share in TARGETS),
        row("oracle", slow > fast),
    ]
    ranked = {**single, "posterior": scores} if slow.mean() > fast.mean() else {}
    figures = {name: apgr(each, fast, slow) for name, each in ranked.items()}
    return PairSummary(rows, figures, tuple(single), len(complete))


def _top(scores: Array, share: float) -> Bools:
    """Mark the questions with the highest scores, this share of them."""
    marked = np.zeros(len(scores), dtype=bool)
    marked[np.argsort(-scores, kind="stable")[: round(share * len(scores))]] = True
    return marked


def _posterior_scores(
    items: Sequence[RecordedItem], fast: Sequence[Attempt], posterior: PosteriorDifficulty
) -> tuple[Array, dict[str, Array]]:
    """Rate each fast answer by its rank among all of them, and by each signal that the file shows.

    An answer without any signal is rated by the difficulty of its question.
    """
    answers = [recorded_signals(each, item.difficulty) for item, each in zip(items, fast, strict=True)]
    signals = SignalArrays.from_answers(answers)
    scores = posterior.predict(signals, QuantileTables.from_signals(signals))
    single: dict[str, Array] = {
        "prior": signals.prior,
        "answer log-prob": -signals.answer_logprob,
        "mean log-prob": -signals.mean_logprob,
        "length": signals.length,
        "unstated": (~(signals.stated & signals.finished)).astype(np.float64),
    }
    # Only signals that vary are used; unknown values are replaced by the median.
    varied = {name: each for name, each in single.items() if len(np.unique(each[np.isfinite(each)])) > 1}
    known = {name: np.where(np.isnan(each), np.nanmedian(each), each) for name, each in varied.items()}
    return np.where(np.isnan(scores), signals.prior, scores), known


def _first(item: RecordedItem, step: Step) -> Attempt | None:
    return next((each for each in item.attempts if each.step is step and each.score is not None), None)


def _cost(attempt: Attempt) -> float:
    cost = total_cost([attempt])
    return np.nan if cost is None else cost
