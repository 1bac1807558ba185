"""ARC-AGI-2: find the rule that turns input grids into output grids; two attempts."""

from __future__ import annotations

from collections.abc import Iterator

from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.dataset import Dataset, Place
from odar.evals.benchmarks.files import Row
from odar.evals.benchmarks.hub import Hub
from odar.evals.scorers.grids import grid_match, show
from odar.types import Query


def _tasks(row: Row, place: Place) -> Iterator[Task]:
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


def _score(task: Task, response: str, answer: str) -> float:
    return grid_match(task.gold, response or answer)


BENCHMARK = Dataset(
    name="arc_agi_2",
    category="Abstract",
    metric="accuracy",
    hub=Hub("arc-agi-community/arc-agi-2"),
    tasks=_tasks,
    scorer=_score,
    local=("arc_agi_2/evaluation.jsonl",),
    size=167,
    licence="Apache-2.0",
    note="120 public evaluation puzzles, a task for each of their test inputs; the paper's table says 400",
)
