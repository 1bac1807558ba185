"""What the agents did with each item, reduced to what fitting needs: collected once, replayed at will."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from odar.calibration.items import Item
from odar.errors import InputError
from odar.policy.fusion import token_counts
from odar.recording.journal import Row
from odar.types import Candidate, Step

FORMAT = "odar-records-3"


@dataclass(frozen=True, slots=True)
class Score:
    """What a surrogate made of a candidate's text (SPEC 5.6)."""

    energy: float
    varentropy: float
    cost_usd: float | None
    """Its share of what scoring cost."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One candidate, reduced to what fitting needs."""

    step: Step
    model: str
    answer: str
    correct: bool
    energy: float | None
    varentropy: float | None
    tokens: int
    """Generated tokens."""
    judgment: bool | None = None
    cost_usd: float | None = None
    """Its share of what this step cost."""
    stated: bool = True
    """Whether it marked its final answer, where it was told to."""
    score: Score | None = None
    """By the surrogate; None where none was needed."""
    text: str = ""
    """Breaks exact ties, as fusion does."""
    finish: str = "stop"
    counted: int = 0
    """Tokens that count for SPEC 5.6; an estimate where the provider lists none."""
    missing: int = 0
    """Those without a log-probability."""


@dataclass(frozen=True, slots=True)
class Record:
    """One item with the fast answer, the slow verification and the slow samples."""

    id: str
    query: str
    difficulty: float
    """The prior estimate at the time."""
    fast: Attempt
    verify: Attempt
    solves: tuple[Attempt, ...]
    """As many as the Hard path takes: fewer than `routing.samples` where fewer settled the answer (SPEC 5.12)."""
    solve_calls: int
    """Samples that were paid for; a batch may have held more than were needed."""
    effort: float | None = None
    """Human time or length of the reference reasoning, where the data has it (SPEC 2.5)."""


def attempt(item: Item, candidate: Candidate, cost_usd: float | None, score: Score | None = None) -> Attempt:
    """A candidate as it is recorded."""
    counted, missing = token_counts(candidate)
    return Attempt(
        step=candidate.step,
        model=candidate.model,
        answer=candidate.answer,
        correct=item.is_right(candidate.answer),
        energy=candidate.energy.energy if candidate.energy else None,
        varentropy=candidate.energy.varentropy if candidate.energy else None,
        tokens=sum(not token.control for token in candidate.tokens),
        judgment=candidate.judgment,
        cost_usd=cost_usd,
        stated=candidate.stated,
        score=score,
        text=candidate.text,
        finish=candidate.finish,
        counted=counted,
        missing=missing,
    )


def record_of(row: Row) -> Record:
    """The record behind a row of the journal; raises InputError where it is none."""
    try:
        names = [field.name for field in fields(Record)]
        attempts = {name: _attempt(row[name]) for name in ("fast", "verify")}
        known = {name: row[name] for name in names if name in row}
        return Record(**{**known, **attempts, "solves": tuple(map(_attempt, row["solves"]))})
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"row {row.get('id')!r} is not a record ({error!r}); move its file away") from None


def _attempt(row: dict[str, Any]) -> Attempt:
    score = row.get("score")  # files of before 2026-11-16 have none
    return Attempt(**{**row, "step": Step(row["step"]), "score": score and Score(**score)})
