"""A-OKVQA: questions about a picture that take knowledge of the world."""

from __future__ import annotations

from collections.abc import Iterator

from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.dataset import Dataset, Place
from odar.evals.benchmarks.files import Row
from odar.evals.benchmarks.hub import Hub
from odar.evals.benchmarks.lettered import score_choice
from odar.evals.benchmarks.options import ask, choices_gold, picture
from odar.evals.scorers.choice import LETTERS
from odar.types import Query


def _tasks(row: Row, place: Place) -> Iterator[Task]:
    options = row["choices"]
    yield Task(
        id=row["question_id"],
        query=Query(ask(row["question"], options), picture(row["image"])),
        gold=choices_gold(LETTERS[row["correct_choice_idx"]], options),
        stratum="difficult" if row.get("difficult_direct_answer") else "plain",
    )


BENCHMARK = Dataset(
    name="aokvqa",
    category="Multimodal",
    metric="accuracy",
    hub=Hub("HuggingFaceM4/A-OKVQA", splits=("validation",)),
    tasks=_tasks,
    scorer=score_choice,
    size=1_145,
    licence="Apache-2.0",
    note="the test split's answers are hidden: this is the validation split, as in the paper's table",
)
