"""MathVista: mathematics in pictures, by choice or by number."""

from __future__ import annotations

from collections.abc import Iterator

from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.dataset import Dataset, Place
from odar.evals.benchmarks.files import Row
from odar.evals.benchmarks.hub import Hub
from odar.evals.benchmarks.options import ask, choices_gold, picture
from odar.evals.scorers.choice import LETTERS, choice
from odar.evals.scorers.numeric import within
from odar.evals.scorers.spans import exact_match
from odar.types import Query


def _tasks(row: Row, place: Place) -> Iterator[Task]:
    options = row["choices"] or []
    precision = row.get("precision")
    if options:
        text = ask(row["question"], options)
        gold = choices_gold(LETTERS[options.index(row["answer"])], options)
    else:
        digits = f" with {int(precision)} decimal places" if precision and row["answer_type"] == "float" else ""
        kind = {"integer": "whole number", "float": "number", "list": "Python list"}.get(row["answer_type"], "word")
        unit = f" in {row['unit']}" if row.get("unit") else ""
        text = f"{row['question'].strip()}\n\nAnswer with a {kind}{unit}{digits}."
        gold = row["answer"]
    yield Task(
        id=str(row["pid"]),
        query=Query(text, picture(row["decoded_image"])),
        gold=gold,
        stratum=str((row.get("metadata") or {}).get("task") or row["question_type"]),
        meta={"precision": precision, "answer_type": row["answer_type"]},
    )


def _score(task: Task, response: str, answer: str) -> float:
    if isinstance(task.gold, dict):
        return choice(task.gold["letter"], answer, task.gold["options"])
    if task.meta["answer_type"] in ("integer", "float"):
        digits = int(task.meta["precision"] or 0)
        return within(task.gold, answer, 0.5 * 10**-digits if task.meta["answer_type"] == "float" else 0)
    return exact_match([task.gold], answer)


BENCHMARK = Dataset(
    name="mathvista",
    category="Mathematics",
    metric="accuracy",
    hub=Hub("AI4Math/MathVista", splits=("testmini",)),
    tasks=_tasks,
    scorer=_score,
    size=1_000,
    licence="CC-BY-SA-4.0",
    note="the official script lets a model pull the answer out of the response; here ODAR parses it",
)
