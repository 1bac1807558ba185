"""OpenBookQA: elementary science that takes a fact and common knowledge."""

from __future__ import annotations

from collections.abc import Iterator

from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.dataset import Dataset, Place
from odar.evals.benchmarks.files import Row
from odar.evals.benchmarks.hub import Hub
from odar.evals.benchmarks.lettered import choice_task, score_choice


def _tasks(row: Row, place: Place) -> Iterator[Task]:
    yield choice_task(row["id"], row["question_stem"], row["choices"], row["answerKey"])


BENCHMARK = Dataset(
    name="openbookqa",
    category="Commonsense",
    metric="accuracy",
    hub=Hub("allenai/openbookqa", ("main",)),
    tasks=_tasks,
    scorer=score_choice,
    size=500,
    licence="Apache-2.0",
)
