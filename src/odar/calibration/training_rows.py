"""A user's own data for the difficulty estimator: queries, and how hard each turned out to be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odar.difficulty.training import d_star
from odar.recording.questions import effort_of, load_lines, query_of
from odar.types import Query


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One query with its difficulty, or with what its difficulty follows from (SPEC 2.5)."""

    query: Query
    difficulty: float | None = None
    correct: float | None = None
    """How often the fast model was right."""
    effort: float | None = None
    """A person's time, or the length of the reference reasoning."""


def load_rows(path: str | Path) -> list[TrainingRow]:
    """Rows from a JSONL file: query, and difficulty or correct; optionally time or reasoning, and image.

    Raises:
        InputError: the file cannot be read, or a line is not such an object; names the line.
    """
    return load_lines(path, _row, "rows")


def targets(rows: list[TrainingRow]) -> NDArray[np.float64]:
    """d* of every row: as given, or from how often the fast model failed and how long the reasoning is.

    >>> targets([TrainingRow(Query("a"), difficulty=0.2), TrainingRow(Query("b"), correct=0.25)]).tolist()
    [0.2, 0.75]
    """
    failure = [0.0 if row.correct is None else 1 - row.correct for row in rows]
    effort = [math.nan if row.effort is None or row.correct is None else row.effort for row in rows]
    given = np.array([math.nan if row.difficulty is None else row.difficulty for row in rows])
    return np.where(np.isnan(given), d_star(failure, effort), given)


def _row(row: dict[str, Any], number: int, folder: Path) -> TrainingRow:
    query = query_of(row, folder)
    difficulty, correct = (_share(row, key) for key in ("difficulty", "correct"))
    if (difficulty is None) == (correct is None):
        raise ValueError("it needs either difficulty or correct")
    return TrainingRow(query, difficulty, correct, effort_of(row))


def _share(row: dict[str, Any], key: str) -> float | None:
    value = row.get(key)
    if value is None:
        return None
    if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
        raise ValueError(f"{key} is {value!r}, not true, false or a number in [0, 1]")
    return float(value)
