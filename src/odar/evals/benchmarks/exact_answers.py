"""Benchmarks whose answers must match exactly: BIG-Bench Hard, BBEH, ARC-AGI-2."""

from __future__ import annotations

from collections.abc import Iterator

from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.dataset import Dataset, Hub, Place, Row, by_answer
from odar.evals.scorers.exact import bigbench, grid_match, show
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


def _bbh_tasks(row: Row, place: Place) -> Iterator[Task]:
    yield Task(str(place), Query(row["input"]), row["target"], place.group)


BBH = Dataset(
    name="bbh",
    category="Advanced Cognition",
    metric="accuracy",
    hub=Hub("lukaemon/bbh", NAMES),
    tasks=_bbh_tasks,
    scorer=by_answer(bigbench),
    local=("bbh/*.json",),
    size=6_511,
    licence="MIT",
)
"""BIG-Bench Hard: 27 tasks on which models were once behind people."""


def _bbeh_tasks(row: Row, place: Place) -> Iterator[Task]:
    """The file of BBEH mini does not say which of the 23 tasks a row is from."""
    task = row.get("task") or ""
    yield Task(
        f"bbeh-{place.number}", Query(row["input"]), row["target"], task, meta={"mini": bool(row.get("mini", True))}
    )


BBEH = Dataset(
    name="bbeh",
    category="Advanced Cognition",
    metric="accuracy",
    hub=Hub("BBEH/bbeh", splits=("train",)),
    tasks=_bbeh_tasks,
    scorer=by_answer(bigbench),
    local=("bbeh/*.json",),
    size=4_520,
    licence="CC-BY-4.0",
    note="the paper's table says 1,500; the published set has 4,520, of which 460 are BBEH mini (meta.mini)",
)
"""BIG-Bench Extra Hard: BBH's 23 skills, made hard again."""


def _arc_agi_2_tasks(row: Row, place: Place) -> Iterator[Task]:
    """A task for every test input of a puzzle, as the official harness asks them."""
    examples = row["train"] if "train" in row else row["fewshots"]
    tests = row["test"] if "test" in row else row["question"]
    puzzle = row.get("id") or f"puzzle-{place.number}"
    shown = "\n\n".join(
        f"Example {number}, input:\n{show(pair['input'])}\n\nExample {number}, output:\n{show(pair['output'])}"
        for number, pair in enumerate(examples, start=1)
    )
    for number, test in enumerate(tests, start=1):
        text = (
            "Every example turns an input grid into an output grid by the same rule; a cell is a digit that stands "
            f"for a colour.\n\n{shown}\n\nTest input:\n{show(test['input'])}\n\n"
            "Write the output grid of the test input as rows of digits. You may give two attempts in a row."
        )
        yield Task(f"{puzzle}-{number}", Query(text), test["output"], puzzle, meta={"outputs": len(tests)})


def _arc_agi_2_score(task: Task, response: str, answer: str) -> float:
    return grid_match(task.gold, response or answer)


ARC_AGI_2 = Dataset(
    name="arc_agi_2",
    category="Abstract",
    metric="accuracy",
    hub=Hub("arc-agi-community/arc-agi-2"),
    tasks=_arc_agi_2_tasks,
    scorer=_arc_agi_2_score,
    local=("arc_agi_2/evaluation.jsonl",),
    size=167,
    licence="Apache-2.0",
    note="120 public evaluation puzzles, a task for each of their test inputs; the paper's table says 400",
)
"""ARC-AGI-2: find the rule that turns input grids into output grids; two attempts."""
