"""GSM8K: grade-school word problems whose answer is one number."""

from __future__ import annotations

from collections.abc import Iterator

from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.dataset import Dataset, Place, by_answer
from odar.evals.benchmarks.files import Row
from odar.evals.benchmarks.hub import Hub
from odar.evals.scorers.numeric import numeric
from odar.types import Query


def _tasks(row: Row, place: Place) -> Iterator[Task]:
    reasoning, marker, gold = row["answer"].rpartition("####")
    if not marker:
        raise ValueError("the answer has no ####")
    steps = reasoning.strip().count("\n") + 1
    yield Task(f"test-{place.number}", Query(row["question"]), gold.strip(), f"{min(steps, 8)} steps", float(steps))


BENCHMARK = Dataset(
    name="gsm8k",
    category="Mathematics",
    metric="accuracy",
    hub=Hub("openai/gsm8k", ("main",)),
    tasks=_tasks,
    scorer=by_answer(numeric),
    local=("gsm8k/test.jsonl",),
    size=1_319,
    licence="MIT",
)
