"""MMLU-Pro: fourteen subjects, up to ten options."""

from __future__ import annotations

from collections.abc import Iterator

from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.dataset import Dataset, Place
from odar.evals.benchmarks.files import Row
from odar.evals.benchmarks.hub import Hub
from odar.evals.benchmarks.lettered import score_choice
from odar.evals.benchmarks.options import ask, choices_gold
from odar.types import Query


def _tasks(row: Row, place: Place) -> Iterator[Task]:
    options = row["options"]
    yield Task(
        str(row["question_id"]),
        Query(ask(row["question"], options)),
        choices_gold(row["answer"], options),
        row["category"],
    )


BENCHMARK = Dataset(
    name="mmlu_pro",
    category="Knowledge QA",
    metric="accuracy",
    hub=Hub("TIGER-Lab/MMLU-Pro"),
    tasks=_tasks,
    scorer=score_choice,
    local=("mmlu_pro_outcomes/items.jsonl",),
    size=12_032,
    licence="MIT",
)
