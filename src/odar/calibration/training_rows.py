"""A user's own data for the difficulty estimator: queries, and how hard each turned out to be."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odar.difficulty.training import d_star
from odar.errors import InputError
from odar.formats import load_json
from odar.images import load_image
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
    file = Path(path).expanduser()
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    rows = list(_parse(text, str(path), file.parent))
    if not rows:
        raise InputError(f"{path} holds no rows")
    return rows


def targets(rows: list[TrainingRow]) -> NDArray[np.float64]:
    """d* of every row: as given, or from how often the fast model failed and how long the reasoning is.

    >>> targets([TrainingRow(Query("a"), difficulty=0.2), TrainingRow(Query("b"), correct=0.25)]).tolist()
    [0.2, 0.75]
    """
    failure = [0.0 if row.correct is None else 1 - row.correct for row in rows]
    effort = [math.nan if row.effort is None or row.correct is None else row.effort for row in rows]
    given = np.array([math.nan if row.difficulty is None else row.difficulty for row in rows])
    return np.where(np.isnan(given), d_star(failure, effort), given)


def _parse(text: str, source: str, folder: Path) -> Iterator[TrainingRow]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield _row(load_json(line), folder)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            why = f"lacks {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(f"{source}, line {number} is no row to train on: {why}") from None


def _row(row: dict[str, Any], folder: Path) -> TrainingRow:
    query = row["query"]
    if not isinstance(query, str) or not query.strip():
        raise ValueError(f"query is {query!r}")
    difficulty, correct = (_share(row, key) for key in ("difficulty", "correct"))
    if (difficulty is None) == (correct is None):
        raise ValueError("it needs either difficulty or correct")
    effort = row.get("time")
    if effort is None and row.get("reasoning"):
        effort = len(row["reasoning"].split())
    if effort is not None and not (isinstance(effort, int | float) and 0 <= effort < math.inf):
        raise ValueError(f"time is {effort!r}")
    images = (load_image(folder / row["image"]),) if row.get("image") else ()
    return TrainingRow(Query(query, images), difficulty, correct, None if effort is None else float(effort))


def _share(row: dict[str, Any], key: str) -> float | None:
    value = row.get(key)
    if value is None:
        return None
    if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
        raise ValueError(f"{key} is {value!r}, not true, false or a number in [0, 1]")
    return float(value)
