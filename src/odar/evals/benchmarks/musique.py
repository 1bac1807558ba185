"""MuSiQue-Answerable: two to four hops over twenty paragraphs."""

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
    paragraphs = [(paragraph["title"], paragraph["paragraph_text"]) for paragraph in row["paragraphs"]]
    hops = len(row["question_decomposition"])
    yield Task(
        id=row["id"],
        query=Query(read_and_ask(paragraphs, row["question"])),
        gold=[row["answer"], *(row["answer_aliases"] or [])],
        stratum=f"{hops} hops",
        effort=float(hops),
    )


BENCHMARK = Dataset(
    name="musique",
    category="Multi-Hop",
    metric="F1",
    hub=Hub("dgslibisey/MuSiQue", splits=("validation",), files=("musique_ans_v1.0_dev.jsonl",)),
    tasks=_tasks,
    scorer=by_answer(f1),
    size=2_417,
    licence="CC-BY-4.0",
    note="F1; `odar eval score` has exact match beside it",
    figures=match_figures,
)
