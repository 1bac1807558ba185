"""ARC-Challenge: grade-school science questions that retrieval gets wrong."""

from __future__ import annotations

from collections.abc import Iterator

from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.dataset import Dataset, Place
from odar.evals.benchmarks.files import Row
from odar.evals.benchmarks.hub import Hub
from odar.evals.benchmarks.lettered import score_choice
from odar.evals.benchmarks.options import LETTERS, ask, choices_gold
from odar.types import Query


def _tasks(row: Row, place: Place) -> Iterator[Task]:
    """Some rows number their options 1 to 4: the place of the key counts, not its name."""
    options = row["choices"]["text"]
    letter = LETTERS[row["choices"]["label"].index(row["answerKey"])]
    yield Task(row["id"], Query(ask(row["question"], options)), choices_gold(letter, options))


BENCHMARK = Dataset(
    name="arc_challenge",
    category="Commonsense",
    metric="accuracy",
    hub=Hub("allenai/ai2_arc", ("ARC-Challenge",)),
    tasks=_tasks,
    scorer=score_choice,
    size=1_172,
    licence="CC-BY-SA-4.0",
)
