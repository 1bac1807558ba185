"""TruthfulQA as free text: the same questions without options, answered in the model's own words."""

from __future__ import annotations

from collections.abc import Iterator

from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.dataset import Dataset, Place
from odar.evals.benchmarks.files import Row
from odar.evals.benchmarks.hub import Hub
from odar.evals.scorers.truthful import truthful_text
from odar.types import Query


def _tasks(row: Row, place: Place) -> Iterator[Task]:
    """The hub's columns, or those of the authors' CSV file."""
    question, category = row.get("question") or row["Question"], row.get("category") or row.get("Category", "")
    gold = {
        "correct": _references(row["correct_answers"] if "correct_answers" in row else row["Correct Answers"]),
        "incorrect": _references(
            row["incorrect_answers"] if "incorrect_answers" in row else row["Incorrect Answers"]
        ),
    }
    yield Task(f"question-{place.number}", Query(question.strip()), gold, category)


def _references(value: str | list[str]) -> list[str]:
    parts = value.split(";") if isinstance(value, str) else value
    return [part.strip() for part in parts if part.strip()]


def _score(task: Task, response: str, answer: str) -> float:
    return truthful_text(task.gold["correct"], task.gold["incorrect"], answer)


BENCHMARK = Dataset(
    name="truthfulqa_text",
    category="Free text",
    metric="accuracy",
    hub=Hub("truthfulqa/truthful_qa", ("generation",), ("validation",)),
    tasks=_tasks,
    scorer=_score,
    local=("truthfulqa/TruthfulQA.csv",),
    size=817,
    licence="Apache-2.0",
    note="not in the paper's table; the authors' revision of 2025 has 790",
)
