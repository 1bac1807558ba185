"""Posterior difficulty: the estimate after the fast answer was seen (SPEC 5.11).

Every path begins with the fast call, so its answer is examined before more is paid for. The score is a weighted
mean of terms in [0, 1], most of them ranks within that model's own answers; all of them grow with the expected gain
of asking the slow model. An unknown term is left out. An answer that was cut off or is empty scores 1. A monotone
map by kind of answer puts the score on the scale of d(x), so that the same τ1 and τ2 apply to both.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any, cast

import msgspec
import numpy as np

from odar.errors import InputError
from odar.formats import check_format
from odar.policy.arrays import Array
from odar.policy.signals import RANKED, AnswerKind, AnswerSignals, QuantileTables, SignalArrays, interpolate
from odar.types import Look

FORMAT = "odar-posterior/4"
TERMS = (
    "unsure_answer", "unsure_text", "long", "long_and_unsure", "unstated", "looks_hard", "not_easy", "disagreement",
)  # fmt: skip
"""Names of the weighted terms, in order."""
WEAK_TERMS = ("looks_hard", "not_easy", "unstated")
"""Terms that do not suffice alone: if no other term is known, the prior decides."""
UNSURE_CAP = 0.6
"""Rank above which `long_and_unsure` no longer grows: the slow model fails the least likely answers too."""
HARD_RANGE = (0.6, 0.8)
"""Difficulties between which `long_and_unsure` falls to a half: a question that looks hard has a long answer
anyway, and the slow model fails many of those questions too."""
EASY_RANGE = (0.15, 0.3)
"""Difficulties between which `not_easy` rises from 0 to 1. It is not a rank: in a set of hard questions none is
easy, and the hardest of them do not gain most."""
MAX_DIFFICULTY = 0.99
"""Maximum posterior difficulty, so that a threshold of 1 is never reached."""
PAPER_MIX = (0.41, 0.76)
"""Shares of answers below τ1 and below τ2 on the data of the fit: the paper's path mix, 41/35/24."""
PAPER_THRESHOLDS = (0.3, 0.7)


@dataclass(frozen=True)
class PosteriorDifficulty:
    """Weights of the terms and the map to a difficulty, by kind of answer.

    >>> posterior = PosteriorDifficulty.load()
    >>> sure = AnswerSignals(AnswerKind.DIRECT, 0.4, True, 6, mean_logprob=-0.01, answer_logprob=-0.01)
    >>> unsure = AnswerSignals(AnswerKind.DIRECT, 0.4, True, 6, mean_logprob=-2.0, answer_logprob=-2.0)
    >>> posterior.look(sure)[0] < posterior.look(unsure)[0]
    True
    """

    weights: Mapping[str, Mapping[str, float]]
    knots: Mapping[str, tuple[float, float]]
    """Scores at τ1 = 0.3 and τ2 = 0.7 of the scale, by kind of answer."""
    tables: QuantileTables = field(default_factory=QuantileTables)
    """Shipped quantiles, for models with too few known answers."""
    about: Mapping[str, Any] = field(default_factory=dict)

    def predict(self, signals: SignalArrays, tables: QuantileTables | None = None) -> Array:
        """Return d(x, y_fast) of each answer; NaN if an answer has too few signals."""
        difficulty = np.full(len(signals), math.nan)
        for kind in AnswerKind:
            rows = signals.kind == kind.value
            if rows.any():
                part = signals.rows(rows)
                score = np.where(part.finished, self.score(kind, self.terms(part, kind, tables)), 1.0)
                difficulty[rows] = np.interp(score, *self._scale(kind))
        return difficulty

    def look(
        self, answer: AnswerSignals, tables: QuantileTables | None = None, origin: str = "shipped"
    ) -> tuple[float | None, Look]:
        """Return d(x, y_fast) of one answer, or None if the prior decides, and the terms behind it for a trace."""
        kind = answer.kind
        tables = self.tables if tables is None else tables.with_fallback(self.tables)
        ranks = {name: tables.rank_one(kind, name, getattr(answer, name)) for name in RANKED}
        weights = self.weights[kind.value]
        used = [
            (term, value, weights[term])
            for term, value in zip(TERMS, _terms_of_answer(answer, ranks), strict=True)
            if value is not None and weights.get(term, 0.0) > 0
        ]
        total = sum(weight for _, _, weight in used)
        score = None
        if not answer.finished:
            score = 1.0
        elif any(term not in WEAK_TERMS for term, _, _ in used):
            score = sum(value * weight for _, value, weight in used) / total
        signals: list[tuple[str, float, float | None]] = []
        for name in (*RANKED, "agreement"):
            value, rank = getattr(answer, name), ranks.get(name)
            if value is not None:
                signals.append((name, float(value), None if rank is None else round(rank, 4)))
        look = Look(
            kind=kind.value,
            stated=answer.stated,
            finished=answer.finished,
            signals=tuple(signals),
            terms=tuple((term, round(value, 4), round(weight / total, 4)) for term, value, weight in used),
            quantiles=origin,
        )
        return None if score is None else interpolate(score, *self._scale(kind)), look

    def terms(self, signals: SignalArrays, kind: AnswerKind, tables: QuantileTables | None = None) -> Array:
        """Return (n, `TERMS`) values in [0, 1] of answers of one kind; NaN if unknown."""
        tables = self.tables if tables is None else tables.with_fallback(self.tables)
        unsure_answer = 1 - tables.rank(kind, "answer_logprob", signals.answer_logprob)
        unsure_text = 1 - tables.rank(kind, "mean_logprob", signals.mean_logprob)
        if kind is not AnswerKind.REASONED:  # the answer is nearly the whole text
            unsure_answer = np.where(np.isnan(unsure_answer), unsure_text, unsure_answer)
        length = tables.rank(kind, "length", signals.length)
        prior = tables.rank(kind, "prior", signals.prior)
        capped = np.where(np.isnan(unsure_text), 1.0, np.minimum(unsure_text, UNSURE_CAP) / UNSURE_CAP)
        long_and_unsure = length * capped * (1 - np.nan_to_num(_ramp(signals.prior, HARD_RANGE)) / 2)
        columns = (
            unsure_answer, unsure_text, length, long_and_unsure, np.where(signals.stated, 0.0, 1.0), prior,
            _ramp(signals.prior, EASY_RANGE), 1 - signals.agreement,
        )  # fmt: skip
        return np.column_stack(columns)

    def score(self, kind: AnswerKind, terms: Array) -> Array:
        """Return the weighted mean of the known terms; NaN if only weak terms are known."""
        weights = np.array([self.weights[kind.value].get(term, 0.0) for term in TERMS])
        known = ~np.isnan(terms)
        total = known @ weights
        strong = known @ np.where([term in WEAK_TERMS for term in TERMS], 0.0, weights)
        with np.errstate(invalid="ignore", divide="ignore"):
            return cast(Array, np.where(strong > 0, np.nan_to_num(terms) @ weights / total, math.nan))

    def _scale(self, kind: AnswerKind) -> tuple[Sequence[float], Sequence[float]]:
        """Return scores in ascending order, and the difficulties that they are mapped to."""
        return (0.0, *self.knots[kind.value], 1.0), (0.0, *PAPER_THRESHOLDS, MAX_DIFFICULTY)

    def with_weights(self, kind: AnswerKind, weights: Mapping[str, float]) -> PosteriorDifficulty:
        """Return a copy with other weights for one kind of answer."""
        return replace(self, weights={**self.weights, kind.value: dict(weights)})

    def to_dict(self) -> dict[str, Any]:
        """Return the content of a saved file."""
        return {
            "format": FORMAT,
            "weights": {kind: {t: round(w, 6) for t, w in row.items()} for kind, row in self.weights.items()},
            "knots": {kind: [round(value, 6) for value in pair] for kind, pair in self.knots.items()},
            "quantiles": self.tables.to_dict(),
            "about": dict(self.about),
        }

    @classmethod
    def from_dict(cls, raw: Any, name: str = "posterior") -> PosteriorDifficulty:
        """Read what `to_dict` wrote; raises InputError if it has another format or is invalid."""
        check_format(
            raw.get("format") if isinstance(raw, dict) else None, FORMAT, name, "run `odar calibrate` again"
        )
        kinds = [kind.value for kind in AnswerKind]
        try:
            weights = {kind: msgspec.convert(raw["weights"][kind], dict[str, float]) for kind in kinds}
            knots = {kind: msgspec.convert(raw["knots"][kind], tuple[float, float]) for kind in kinds}
            tables = QuantileTables.from_dict(raw["quantiles"])
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise InputError(f"{name} is not a posterior: {error}") from None
        for kind, row in weights.items():
            if unknown := sorted(set(row) - set(TERMS)):
                raise InputError(f"{name}: unknown term {unknown[0]!r}; the terms are {', '.join(TERMS)}")
            if not all(math.isfinite(w) and w >= 0 for w in row.values()) or not sum(row.values()):
                raise InputError(f"{name}: weights of {kind} answers must be at least 0 and not all 0")
        if bad := [kind for kind, (low, high) in knots.items() if not 0 < low < high < 1]:
            raise InputError(f"{name}: knots of {bad[0]} answers must ascend between 0 and 1")
        return cls(weights, knots, tables, raw.get("about", {}))

    @classmethod
    def load(cls, fitted: Any = None, name: str = "") -> PosteriorDifficulty:
        """Return the posterior that a calibration of this name fitted; the shipped one if it fitted none."""
        return _shipped() if fitted is None else cls.from_dict(fitted, f"the posterior of {name}")


def _terms_of_answer(answer: AnswerSignals, ranks: Mapping[str, float | None]) -> tuple[float | None, ...]:
    """Return `PosteriorDifficulty.terms` of one answer, with None for unknown terms."""
    sure_answer, sure_text, length = ranks["answer_logprob"], ranks["mean_logprob"], ranks["length"]
    unsure_answer = None if sure_answer is None else 1 - sure_answer
    unsure_text = None if sure_text is None else 1 - sure_text
    if answer.kind is not AnswerKind.REASONED and unsure_answer is None:
        unsure_answer = unsure_text
    capped = 1.0 if unsure_text is None else min(unsure_text, UNSURE_CAP) / UNSURE_CAP
    return (
        unsure_answer,
        unsure_text,
        length,
        None if length is None else length * capped * (1 - _ramp_of_number(answer.prior, HARD_RANGE) / 2),
        float(not answer.stated),
        ranks["prior"],
        _ramp_of_number(answer.prior, EASY_RANGE),
        None if answer.agreement is None else 1 - answer.agreement,
    )


def _ramp(values: Array, ends: tuple[float, float]) -> Array:
    """Interpolate linearly from 0 at the first end to 1 at the second."""
    return np.clip((values - ends[0]) / (ends[1] - ends[0]), 0, 1)


def _ramp_of_number(value: float, ends: tuple[float, float]) -> float:
    """Return `_ramp` of one number, without the overhead of numpy."""
    return min(1.0, max(0.0, (value - ends[0]) / (ends[1] - ends[0])))


@cache
def _shipped() -> PosteriorDifficulty:
    text = resources.files("odar.policy").joinpath("posterior.json").read_text("utf-8")
    return PosteriorDifficulty.from_dict(json.loads(text), "posterior.json")
