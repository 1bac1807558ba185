"""GPQA: graduate questions in biology, physics and chemistry, written to resist a search."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.dataset import Dataset, Place
from odar.evals.benchmarks.files import Row
from odar.evals.benchmarks.hub import Hub
from odar.evals.benchmarks.lettered import score_choice
from odar.evals.benchmarks.options import ask, choices_gold, shuffled
from odar.evals.scorers.choice import LETTERS
from odar.types import Query


def _tasks(row: Row, place: Place) -> Iterator[Task]:
    """The right answer has a column of its own, so options are shuffled, by the record's id alone."""
    wrong = [row[f"Incorrect Answer {i}"].strip() for i in (1, 2, 3)]
    options, right = shuffled([row["Correct Answer"].strip()], wrong, row["Record ID"])
    minutes = [float(row[field]) for i in (1, 2) if row.get(field := f"Self-reported time (minutes)_EV_{i}")]
    yield Task(
        id=row["Record ID"],
        query=Query(ask(row["Question"], options)),
        gold=choices_gold(LETTERS[right[0]], options),
        stratum=row["High-level domain"],
        effort=statistics.mean(minutes) if minutes else None,
    )


BENCHMARK = Dataset(
    name="gpqa",
    category="Knowledge QA",
    metric="accuracy",
    hub=Hub("Idavidrein/gpqa", ("gpqa_main",), ("train",), files=("gpqa_main.csv",), gated=True),
    tasks=_tasks,
    scorer=score_choice,
    size=448,
    licence="CC-BY-4.0",
)
