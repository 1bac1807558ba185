"""Recorded items as arrays: questions, candidates and costs; and their statistics."""

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
    """What is known of each item once the fast agent has answered; one entry per item in every array."""

    prior: Array
    """d(x) by the estimator in use."""
    signals: SignalArrays
    """What the fast answers show about themselves."""
    wrong: Bools
    gain: Array
    """How much more often the slow model is right: the mean of its samples minus the fast answer."""
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
    """Everything that was recorded of each item; columns are those of `CandidateArrays`."""

    fast: FastAnswers
    candidates: CandidateArrays
    """Candidates without alignment and with a skill of 1; a `Setup` adds both."""
    correct: Bools
    """(N, M) whether the candidate is right."""
    cost: Array
    """(N, M) US dollars; NaN if unknown."""
    scoring_cost: Array
    """(N, M) what the surrogate's score of the candidate cost; NaN if unknown."""

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
        similarity: how free text is compared (SPEC 5.15).
    """
    rows = [attempts_by_column(item) for item in items]
    width = max(map(len, rows))
    cells = [[_cell(each, row, varentropy_weight) for each in row] + [_ABSENT] * (width - len(row)) for row in rows]
    table: dict[str, Any] = {
        name: np.array([[cell[name] for cell in row] for row in cells], dtype=type(absent))
        for name, absent in _ABSENT.items()
    }
    own = {name: table.pop(name) for name in ("correct", "cost", "scoring_cost")}
    correct, present = own["correct"], table["present"]
    prior = np.array([item.difficulty for item in items]) if prior is None else prior
    slow_right = (correct & present)[:, SOLVE:].sum(axis=1) / np.maximum(1, present[:, SOLVE:].sum(axis=1))
    fast = FastAnswers(
        prior=prior,
        signals=SignalArrays.from_answers(
            [_signals(row[FAST], float(d)) for row, d in zip(rows, prior, strict=True)]
        ),
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


def _cell(attempt: Attempt | None, row: Sequence[Attempt | None], weight: float) -> dict[str, Any]:
    """One recorded answer in numbers; samples of one request share the price of its prompt."""
    if attempt is None:
        return _ABSENT
    figures, score = figures_of(attempt), attempt.surrogate
    together = sum(each is not None and each.request == attempt.request for each in row)
    known = attempt.prompt_usd is not None and attempt.output_usd is not None
    paid = (attempt.prompt_usd or 0.0) / together + (attempt.output_usd or 0.0)
    energies = {
        name: np.nan
        if each is None or each.energy is None or each.varentropy is None
        else free_energy(each.energy, each.varentropy, weight)
        for name, each in (("energy", figures), ("surrogate", score))
    }
    names = ("total", "missing", "mean_logprob", "mean_probability", "lowest_window")
    measured = {name: getattr(figures, name) for name in names}
    return {
        "present": True,
        **energies,
        **{name: np.nan if value is None else value for name, value in measured.items()},
        "complete": is_complete(attempt.candidate),
        "correct": (attempt.score or 0.0) >= MIN_RIGHT_SCORE,
        "cost": paid if known else np.nan,
        "scoring_cost": np.nan if score is None or score.cost_usd is None else score.cost_usd,
    }


def _signals(attempt: Attempt | None, prior: float) -> AnswerSignals:
    if attempt is None:
        return AnswerSignals(AnswerKind.REASONED, prior, stated=True, length=None)
    return recorded_signals(attempt, prior)


def is_complete_item(item: RecordedItem) -> bool:
    """Return whether an item has what every path needs: a fast answer, its verification and a slow sample."""
    return {each.step for each in item.attempts if each.score is not None} == set(Step)


def attempts_by_column(item: RecordedItem) -> list[Attempt | None]:
    """Return the attempts of an item by column: the fast answer, the verification, the slow samples."""
    by_step = {step: [each for each in item.attempts if each.step is step] for step in Step}
    single = [next(iter(by_step[step]), None) for step in (Step.ANSWER, Step.VERIFY)]
    return [*single, *sorted(by_step[Step.SOLVE], key=lambda each: each.index)]


def _order(row: Sequence[Attempt | None], width: int) -> list[int]:
    """Columns in the order in which fusion breaks exact ties; those without an answer last."""
    there = [i for i, each in enumerate(row) if each is not None]
    ranks = tie_order([each.candidate for each in row if each is not None])
    ordered = [there[rank] for rank in ranks]
    return [*ordered, *(i for i in range(width) if i not in ordered)]


def fit_statistics(evidence: Evidence) -> tuple[Statistics | None, ...]:
    """Return the statistics of the fast answer, the verification and the slow samples; None without an energy.

    They are of the models' own log-probabilities; a surrogate's scores of the same texts are on another scale.
    """
    fast, *slow = _by_source(evidence.candidates.energy)
    return statistics_of(fast, evidence.fast.signals), *map(statistics_of, slow)


def fit_scores(evidence: Evidence) -> tuple[Statistics | None, ...] | None:
    """Return the same for the surrogate's scores; None if there is no surrogate."""
    if not np.isfinite(evidence.candidates.surrogate).any():
        return None
    return tuple(statistics_of(energy) for energy in _by_source(evidence.candidates.surrogate))


def _by_source(energy: Array) -> list[Array]:
    return [energy[:, FAST], energy[:, VERIFY], energy[:, SOLVE:].ravel()]


def statistics_of(energy: Array, signals: SignalArrays | None = None) -> Statistics | None:
    """Return μ and σ with clipped tails, so that one absurd answer does not move them; None if nothing is known.

    A model without log-probabilities has no μ and σ, but quantiles of lengths: its deviation is 1.

    >>> statistics_of(np.array([0.1, 0.3, np.nan]))
    Statistics(mean=0.2, deviation=0.1, count=2, skill=1.0, quantiles=None)
    """
    known = energy[np.isfinite(energy)]
    quantiles = (QuantileTables.from_signals(signals).to_dict() or None) if signals is not None else None
    if not known.size:
        return None if quantiles is None else Statistics(0.0, 1.0, 0, quantiles=quantiles)
    drawn = np.clip(known, *np.percentile(known, [1, 99])) if known.size > 2 else known
    mean, deviation = round(float(drawn.mean()), 6), round(float(drawn.std()), 6) or 1.0
    return Statistics(mean, deviation, int(known.size), quantiles=quantiles)
