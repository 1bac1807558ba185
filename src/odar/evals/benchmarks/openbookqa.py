"""OpenBookQA: elementary science that takes a fact and common knowledge."""

from __future__ import annotations

from collections.abc import Iterator

from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.dataset import Dataset, Place
from odar.evals.benchmarks.files import Row
from odar.evals.benchmarks.hub import Hub
from odar.evals.benchmarks.lettered import score_choice
from odar.evals.benchmarks.options import LETTERS, ask, choices_gold
from odar.types import Query


def _tasks(row: Row, place: Place) -> Iterator[Task]:
    options = row["choices"]["text"]
    letter = LETTERS[row["choices"]["label"].index(row["answerKey"])]
    yield Task(row["id"], Query(ask(row["question_stem"], options)), choices_gold(letter, options))


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
