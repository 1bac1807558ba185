"""StrategyQA: yes/no questions whose steps are left unsaid."""

from __future__ import annotations

from collections.abc import Iterator

from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.dataset import Dataset, Place, by_answer
from odar.evals.benchmarks.files import Row
from odar.evals.benchmarks.hub import Hub
from odar.evals.scorers.verdict import verdict
from odar.types import Query


def _tasks(row: Row, place: Place) -> Iterator[Task]:
    """The official file has the steps of each question; the hub's copy has not."""
    steps = row.get("decomposition") or []
    yield Task(
        id=row["qid"],
        query=Query(f"{row['question'].strip()}\n\nAnswer with yes or no."),
        gold=bool(row["answer"]),
        stratum="yes" if row["answer"] else "no",
        effort=float(len(steps)) if steps else None,
    )


BENCHMARK = Dataset(
    name="strategyqa",
    category="Commonsense",
    metric="accuracy",
    hub=Hub("ChilleD/StrategyQA", splits=("train", "test")),
    tasks=_tasks,
    scorer=by_answer(verdict),
    local=("strategyqa/train.jsonl", "strategyqa/dev.jsonl"),
    size=2_290,
    licence="MIT",
    note="the official test labels are hidden: these are all labelled questions, as in the paper's table",
)
