"""Recorded items as arrays (questions, candidates, costs), and the statistics of their energies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odar.difficulty.training import d_star
from odar.policy.alignment import Statistics
from odar.policy.arrays import Array, Bools, Rows
from odar.policy.energy import free_energy
from odar.policy.fusion import FAST, SOLVE, VERIFY, CandidateArrays, is_complete, tie_order
from odar.policy.signals import AnswerKind, AnswerSignals, QuantileTables, SignalArrays
from odar.policy.similarity import AnswerRows
from odar.recording.schema import MIN_RIGHT_SCORE, Attempt, RecordedItem, figures_of, recorded_signals
from odar.types import Step


@dataclass(frozen=True, slots=True)
class FastAnswers(Rows):
    """Questions and their fast answers; one entry per item in every array."""

    prior: Array
    """d(x) by the estimator in use."""
    signals: SignalArrays
    """Signals of the fast answers."""
    wrong: Bools
    gain: Array
    """Mean score of the slow samples minus the score of the fast answer."""
    effort: Array
    """Human time or length of a reference reasoning; NaN if unknown."""
    features: Array | None
    """(N, 24) φ(x); None if the estimator in use is not the learned one."""
    experts: NDArray[np.str_] | None = None
    """The expert of each question; None if it was not recorded."""

    def __len__(self) -> int:
        return len(self.prior)

    @property
    def target(self) -> Array:
        """d* (SPEC 2.5)."""
        return d_star(self.wrong, self.effort)


@dataclass(frozen=True, slots=True)
class Evidence(Rows):
    """All recorded answers of each item; columns are those of `CandidateArrays`."""

    fast: FastAnswers
    candidates: CandidateArrays
    """Candidates without alignment and with a skill of 1; a `Setup` adds both."""
    correct: Bools
    """(N, M) whether the candidate is right."""
    cost: Array
    """(N, M) US dollars; NaN if unknown."""
    scoring_cost: Array
    """(N, M) cost of the surrogate's score of the candidate; NaN if unknown."""

    def __len__(self) -> int:
        return len(self.fast)


def evidence_of(
    items: Sequence[RecordedItem],
    varentropy_weight: float,
    features: Array | None = None,
    prior: Array | None = None,
    similarity: str = "lexical",
) -> Evidence:
    """Turn recorded items into arrays.

    Args:
        items: each with a fast answer, its verification and slow samples, all scored.
        varentropy_weight: λ.
        features: φ of their questions, in the same order.
        prior: d(x) of each; by default as it was recorded.
        similarity: comparison of free text (SPEC 5.15).
    """
    rows = [attempts_by_column(item) for item in items]
    width = max(map(len, rows))
    table = _cell_table(rows, width, varentropy_weight)
    own = {name: table.pop(name) for name in ("correct", "cost", "scoring_cost")}
    correct, present = own["correct"], table["present"]
    prior = np.array([item.difficulty for item in items]) if prior is None else prior
    slow_right = (correct & present)[:, SOLVE:].sum(axis=1) / np.maximum(1, present[:, SOLVE:].sum(axis=1))
    signals = [_signals(row[FAST], float(d)) for row, d in zip(rows, prior, strict=True)]
    fast = FastAnswers(
        prior=prior,
        signals=SignalArrays.from_answers(signals),
        wrong=~correct[:, FAST],
        gain=slow_right - correct[:, FAST],
        effort=np.array([np.nan if item.effort is None else item.effort for item in items]),
        features=features,
        experts=np.array([item.expert for item in items]),
    )
    texts = [["" if each is None else each.answer for each in row] for row in rows]
    stated = [[each is not None and each.candidate.stated for each in row] for row in rows]
    unknown = np.full(present.shape, np.nan)
    candidates = CandidateArrays(
        **table,
        aligned=unknown,
        surrogate_aligned=unknown,
        skills=np.ones(present.shape),
        order=np.array([_order(row, width) for row in rows]),
        answers=AnswerRows.of_answers(texts, stated, [item.query for item in items], similarity),
    )
    return Evidence(fast, candidates, **own)


_ABSENT = {
    "present": False, "energy": np.nan, "surrogate": np.nan, "total": 0.0, "missing": 0.0, "complete": False,
    "correct": False, "cost": 0.0, "scoring_cost": 0.0, "mean_logprob": np.nan, "mean_probability": np.nan,
    "lowest_window": np.nan,
}  # fmt: skip
"""Values for a missing candidate."""


def _cell_table(rows: Sequence[Sequence[Attempt | None]], width: int, weight: float) -> dict[str, Any]:
    """Return (N, width) arrays with the names of `_ABSENT`."""
    cells = [[_cell(each, row, weight) for each in row] + [_ABSENT] * (width - len(row)) for row in rows]
    return {
        name: np.array([[cell[name] for cell in row] for row in cells], dtype=type(absent))
        for name, absent in _ABSENT.items()
    }


def _cell(attempt: Attempt | None, row: Sequence[Attempt | None], weight: float) -> dict[str, Any]:
    """Return one recorded answer in numbers; samples of one request share the price of its prompt."""
    if attempt is None:
        return _ABSENT
    figures, score = figures_of(attempt), attempt.surrogate
    sharing = sum(each is not None and each.request == attempt.request for each in row)
    names = ("total", "missing", "mean_logprob", "mean_probability", "lowest_window")
    return {
        "present": True,
        "energy": _free_energy(figures.energy, figures.varentropy, weight),
        "surrogate": np.nan if score is None else free_energy(score.energy, score.varentropy, weight),
        **{name: _or_nan(getattr(figures, name)) for name in names},
        "complete": is_complete(attempt.candidate),
        "correct": (attempt.score or 0.0) >= MIN_RIGHT_SCORE,
        "cost": _or_nan(attempt.prompt_usd) / sharing + _or_nan(attempt.output_usd),
        "scoring_cost": np.nan if score is None else _or_nan(score.cost_usd),
    }


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value


def _free_energy(energy: float | None, varentropy: float | None, weight: float) -> float:
    return np.nan if energy is None or varentropy is None else free_energy(energy, varentropy, weight)


def _signals(attempt: Attempt | None, prior: float) -> AnswerSignals:
    if attempt is None:
        return AnswerSignals(AnswerKind.REASONED, prior, stated=True, length=None)
    return recorded_signals(attempt, prior)


def is_complete_item(item: RecordedItem) -> bool:
    """Return whether an item has scored answers for every path: a fast one, its verification and a slow sample."""
    return {each.step for each in item.attempts if each.score is not None} == set(Step)


def attempts_by_column(item: RecordedItem) -> list[Attempt | None]:
    """Return the attempts of an item by column: the fast answer, the verification, the slow samples."""
    by_step = {step: [each for each in item.attempts if each.step is step] for step in Step}
    single = [next(iter(by_step[step]), None) for step in (Step.ANSWER, Step.VERIFY)]
    return [*single, *sorted(by_step[Step.SOLVE], key=lambda each: each.index)]


def _order(row: Sequence[Attempt | None], width: int) -> list[int]:
    """Return the columns in the order in which fusion breaks exact ties; those without an answer come last."""
    present = [i for i, each in enumerate(row) if each is not None]
    ordered = [present[rank] for rank in tie_order([each.candidate for each in row if each is not None])]
    return [*ordered, *(i for i in range(width) if i not in ordered)]


def fit_statistics(evidence: Evidence) -> tuple[Statistics | None, ...]:
    """Return the statistics of fast answers, verifications and slow samples; None for a step without energies.

    Only the models' own log-probabilities count: a surrogate's scores are on another scale.
    """
    fast, *slow = _by_source(evidence.candidates.energy)
    return statistics_of(fast, evidence.fast.signals), *map(statistics_of, slow)


def fit_surrogate_statistics(evidence: Evidence) -> tuple[Statistics | None, ...] | None:
    """Return the statistics of the surrogate's scores at each step; None if there is no surrogate."""
    if not np.isfinite(evidence.candidates.surrogate).any():
        return None
    return tuple(statistics_of(energy) for energy in _by_source(evidence.candidates.surrogate))


def _by_source(energy: Array) -> list[Array]:
    return [energy[:, FAST], energy[:, VERIFY], energy[:, SOLVE:].ravel()]


def statistics_of(energy: Array, signals: SignalArrays | None = None) -> Statistics | None:
    """Return μ and σ with clipped tails, so that outliers do not move them; None if nothing is known.

    A model without log-probabilities has quantiles of lengths only: its μ is 0 and its σ is 1.

    >>> statistics_of(np.array([0.1, 0.3, np.nan]))
    Statistics(mean=0.2, deviation=0.1, count=2, skill=1.0, quantiles=None)
    """
    known = energy[np.isfinite(energy)]
    quantiles = (QuantileTables.from_signals(signals).to_dict() or None) if signals is not None else None
    if not known.size:
        return None if quantiles is None else Statistics(0.0, 1.0, 0, quantiles=quantiles)
    clipped = np.clip(known, *np.percentile(known, [1, 99])) if known.size > 2 else known
    mean, deviation = round(float(clipped.mean()), 6), round(float(clipped.std()), 6) or 1.0
    return Statistics(mean, deviation, int(known.size), quantiles=quantiles)
