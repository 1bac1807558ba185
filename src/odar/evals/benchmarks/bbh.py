"""BIG-Bench Hard: 27 tasks on which models were once behind people."""

from __future__ import annotations

from collections.abc import Iterator

from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.dataset import Dataset, Place, by_answer
from odar.evals.benchmarks.files import Row
from odar.evals.benchmarks.hub import Hub
from odar.evals.scorers.bigbench import bigbench
from odar.types import Query

NAMES = (
    *("boolean_expressions", "causal_judgement", "date_understanding", "disambiguation_qa", "dyck_languages"),
    *("formal_fallacies", "geometric_shapes", "hyperbaton", "logical_deduction_five_objects"),
    *("logical_deduction_seven_objects", "logical_deduction_three_objects", "movie_recommendation"),
    *("multistep_arithmetic_two", "navigate", "object_counting", "penguins_in_a_table"),
    *("reasoning_about_colored_objects", "ruin_names", "salient_translation_error_detection", "snarks"),
    *("sports_understanding", "temporal_sequences", "tracking_shuffled_objects_five_objects"),
    *("tracking_shuffled_objects_seven_objects", "tracking_shuffled_objects_three_objects", "web_of_lies"),
    "word_sorting",
)


def _tasks(row: Row, place: Place) -> Iterator[Task]:
    yield Task(str(place), Query(row["input"]), row["target"], place.group)


BENCHMARK = Dataset(
    name="bbh",
    category="Advanced Cognition",
    metric="accuracy",
    hub=Hub("lukaemon/bbh", NAMES),
    tasks=_tasks,
    scorer=by_answer(bigbench),
    local=("bbh/*.json",),
    size=6_511,
    licence="MIT",
)
