"""Benchmarks whose answers must match exactly: BIG-Bench Hard, BBEH, ARC-AGI-2."""

from __future__ import annotations

from collections.abc import Iterator

from odar.evals.benchmarks.base import Dataset, Place, Row, Task, by_answer
from odar.evals.scorers.text import bigbench, grid_match, show
from odar.types import Query


def _bbh_tasks(row: Row, place: Place) -> Iterator[Task]:
    yield Task(str(place), Query(row["input"]), row["target"], place.group)


BBH = Dataset.named("bbh", _bbh_tasks, by_answer(bigbench))


def _bbeh_tasks(row: Row, place: Place) -> Iterator[Task]:
    """The file of BBEH mini does not say which of the 23 tasks a row is from."""
    task = row.get("task") or ""
    yield Task(
        f"bbeh-{place.number}", Query(row["input"]), row["target"], task, meta={"mini": bool(row.get("mini", True))}
    )


BBEH = Dataset.named("bbeh", _bbeh_tasks, by_answer(bigbench))


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


ARC_AGI_2 = Dataset.named("arc_agi_2", _arc_agi_2_tasks, _arc_agi_2_score)
