"""ScienceQA: school questions, about half of them with a picture."""

from __future__ import annotations

from collections.abc import Iterator

from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.dataset import Dataset, Place
from odar.evals.benchmarks.files import Row
from odar.evals.benchmarks.hub import Hub
from odar.evals.benchmarks.lettered import score_choice
from odar.evals.benchmarks.options import ask, choices_gold, picture
from odar.evals.scorers.choice import LETTERS
from odar.types import Query


def _tasks(row: Row, place: Place) -> Iterator[Task]:
    """The lecture and the solution stay out of the query: they give the answer away."""
    options = row["choices"]
    yield Task(
        id=f"test-{place.number}",
        query=Query(ask(row["question"], options, before=row["hint"] or ""), picture(row["image"])),
        gold=choices_gold(LETTERS[row["answer"]], options),
        stratum=f"{row['subject']}, {row['grade']}",
        effort=float(len(row["solution"].split())) if row.get("solution") else None,
    )


BENCHMARK = Dataset(
    name="scienceqa",
    category="Multimodal",
    metric="accuracy",
    hub=Hub("derek-thomas/ScienceQA"),
    tasks=_tasks,
    scorer=score_choice,
    size=4_241,
    licence="CC-BY-NC-SA-4.0",
)
