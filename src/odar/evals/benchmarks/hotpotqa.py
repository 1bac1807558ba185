"""HotpotQA: questions over two paragraphs among ten (the distractor setting)."""

from __future__ import annotations

from collections.abc import Iterator

from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.dataset import Dataset, Place, by_answer
from odar.evals.benchmarks.files import Row
from odar.evals.benchmarks.hub import Hub
from odar.evals.benchmarks.passages import match_figures, read_and_ask
from odar.evals.scorers.spans import f1
from odar.types import Query


def _tasks(row: Row, place: Place) -> Iterator[Task]:
    context = row["context"]
    paragraphs = [
        (title, "".join(sentences)) for title, sentences in zip(context["title"], context["sentences"], strict=True)
    ]
    yield Task(
        id=row["id"],
        query=Query(read_and_ask(paragraphs, row["question"])),
        gold=[row["answer"]],
        stratum=f"{row['type']}, {row['level']}",
    )


BENCHMARK = Dataset(
    name="hotpotqa",
    category="Multi-Hop",
    metric="F1",
    hub=Hub("hotpotqa/hotpot_qa", ("distractor",), ("validation",)),
    tasks=_tasks,
    scorer=by_answer(f1),
    size=7_405,
    licence="CC-BY-SA-4.0",
    note="F1; `odar eval score` has exact match beside it",
    figures=match_figures,
)
