"""Benchmarks whose responses a program verifies: instructions, tests, patches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odar.evals.benchmarks.base import About, Dataset, Hub, Place, Row, Task
from odar.evals.scorers.ifeval import CHECKS, follow
from odar.evals.scorers.livebench import instruction_score, livebench, program_score
from odar.types import Query


def _ifeval_tasks(row: Row, place: Place) -> Iterator[Task]:
    names = row["instruction_id_list"]
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        raise ValueError(f"unknown instructions {unknown}")
    given = [{k: v for k, v in (kwargs or {}).items() if v is not None} for kwargs in row["kwargs"]]
    gold = {"instructions": names, "arguments": given}
    yield Task(str(row["key"]), Query(row["prompt"]), gold, f"{len(names)} instruction{'s' * (len(names) > 1)}")


def _ifeval_score(task: Task, response: str, answer: str) -> float:
    """Prompt-level strict, of the whole response."""
    return float(all(follow(task.gold["instructions"], task.gold["arguments"], response)))


IFEVAL = Dataset.named("ifeval", _ifeval_tasks, _ifeval_score)


_LIVEBENCH_CATEGORIES = ("coding", "math", "reasoning", "language", "data_analysis", "instruction_following")
_LIVEBENCH_PROGRAM = ("tests", "partial_solution", "original_json", "public_test_cases", "private_test_cases")


def _livebench_tasks(row: Row, place: Place) -> Iterator[Task]:
    """Questions that a later release took back stay in the files, dated: they are left out."""
    if row.get("livebench_removal_date"):
        return
    task = row.get("task") or row["category"]
    gold: dict[str, Any] = {"task": task, "truth": row.get("ground_truth")}
    if row.get("instruction_id_list"):
        given = [{k: v for k, v in (kwargs or {}).items() if v is not None} for kwargs in row["kwargs"]]
        gold |= {"instructions": row["instruction_id_list"], "arguments": given}
    elif row["category"] == "coding":
        gold["program"] = {field: row.get(field) for field in _LIVEBENCH_PROGRAM}
    yield Task(row["question_id"], Query(row["turns"][0]), gold, f"{row['category']}, {task}")


def _livebench_score(task: Task, response: str, answer: str) -> float:
    if "instructions" in task.gold:
        return instruction_score(task.gold["instructions"], task.gold["arguments"], response)
    if "program" in task.gold:
        return program_score(task.gold["program"], response)
    return livebench(task.gold["task"], task.gold["truth"], response, answer)


_LIVEBENCH_PARTS = tuple(
    Dataset(
        f"livebench/{category}",
        "Coding",
        "similarity",
        Hub(f"livebench/{category}"),
        _livebench_tasks,
        _livebench_score,
    )
    for category in _LIVEBENCH_CATEGORIES
)


@dataclass(frozen=True, slots=True)
class LiveBench:
    """The six categories, one after the other."""

    parts: tuple[Dataset, ...] = _LIVEBENCH_PARTS
    name: str = "livebench"
    category: str = "Coding"
    metric: str = "similarity"

    @property
    def about(self) -> About:
        """Source, size, licence."""
        return About(
            source="hub:livebench/{" + ",".join(_LIVEBENCH_CATEGORIES) + "} (default, test)",
            needs="the sandbox, for programs",
            note="questions change with every release; the agentic coding tasks, which need Docker, are left out",
            plain=True,
        )

    def load(self, folder: Path | None = None) -> Iterator[Task]:
        """The questions of every category; in a folder, of those that FOLDER/livebench has."""
        here = self.parts if folder is None else [part for part in self.parts if (folder / part.name).is_dir()]
        for part in here or self.parts[:1]:  # with none there, the first says what is missing
            yield from part.load(folder)

    def score(self, task: Task, response: str, answer: str) -> float:
        """By the rule of the question's task."""
        return _livebench_score(task, response, answer)


LIVEBENCH = LiveBench()
"""LiveBench: recent questions with objective answers, in six categories, each a dataset of its own on the hub."""


def _swe_bench_tasks(row: Row, place: Place) -> Iterator[Task]:
    """The oracle form, whose `text` holds the issue and the files to change: one call can answer it."""
    text = row.get("text") or f"{row['problem_statement'].strip()}\n\nAnswer with a patch in unified diff format."
    yield Task(row["instance_id"], Query(text), row["instance_id"], row["repo"])


SWE_BENCH = Dataset.named("swe_bench", _swe_bench_tasks)
