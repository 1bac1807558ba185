"""TruthfulQA: questions that people answer with common mistakes, as single-true multiple choice (MC1)."""

from __future__ import annotations

from collections.abc import Iterator

from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.dataset import Dataset, Place
from odar.evals.benchmarks.files import Row
from odar.evals.benchmarks.hub import Hub
from odar.evals.benchmarks.options import ask, shuffled
from odar.evals.scorers.truthful import truthful_letter
from odar.types import Query


def _tasks(row: Row, place: Place) -> Iterator[Task]:
    """The true option always comes first in the files: options are shuffled, by the question alone."""
    targets = row["mc1_targets"]
    labels = dict(zip(targets["choices"], targets["labels"], strict=True)) if "choices" in targets else targets
    right = [option for option, label in labels.items() if label]
    wrong = [option for option, label in labels.items() if not label]
    options, places = shuffled(right, wrong, row["question"])
    gold = {"right": places, "options": options}
    yield Task(f"question-{place.number}", Query(ask(row["question"], options)), gold)


def _score(task: Task, response: str, answer: str) -> float:
    return truthful_letter(task.gold["right"], answer, task.gold["options"])


BENCHMARK = Dataset(
    name="truthfulqa",
    category="Advanced Cognition",
    metric="accuracy",
    hub=Hub("truthfulqa/truthful_qa", ("multiple_choice",), ("validation",)),
    tasks=_tasks,
    scorer=_score,
    local=("truthfulqa/mc_task.json",),
    size=817,
    licence="Apache-2.0",
    note="the authors' revision of 2025 has 790; MC1 and MC2 by log-probabilities: odar.evals.scorers.truthful",
)
