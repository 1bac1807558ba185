"""BoolQ: yes/no questions about a passage."""

from __future__ import annotations

from collections.abc import Iterator

from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.dataset import Dataset, Place, by_answer
from odar.evals.benchmarks.files import Row
from odar.evals.benchmarks.hub import Hub
from odar.evals.scorers.verdict import verdict
from odar.types import Query


def _tasks(row: Row, place: Place) -> Iterator[Task]:
    text = f"{row['passage'].strip()}\n\nQuestion: {row['question'].strip().rstrip('?')}?\n\nAnswer with yes or no."
    gold = bool(row["answer"])
    yield Task(f"validation-{place.number}", Query(text), gold, "yes" if gold else "no")


BENCHMARK = Dataset(
    name="boolq",
    category="Commonsense",
    metric="accuracy",
    hub=Hub("google/boolq", splits=("validation",)),
    tasks=_tasks,
    scorer=by_answer(verdict),
    size=3_270,
    licence="CC-BY-SA-3.0",
)
