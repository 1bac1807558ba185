"""ARC-Challenge: grade-school science questions that retrieval gets wrong."""

from __future__ import annotations

from collections.abc import Iterator

from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.dataset import Dataset, Place
from odar.evals.benchmarks.files import Row
from odar.evals.benchmarks.hub import Hub
from odar.evals.benchmarks.lettered import choice_task, score_choice


def _tasks(row: Row, place: Place) -> Iterator[Task]:
    yield choice_task(row["id"], row["question"], row["choices"], row["answerKey"])


BENCHMARK = Dataset(
    name="arc_challenge",
    category="Commonsense",
    metric="accuracy",
    hub=Hub("allenai/ai2_arc", ("ARC-Challenge",)),
    tasks=_tasks,
    scorer=score_choice,
    size=1_172,
    licence="CC-BY-SA-4.0",
)
