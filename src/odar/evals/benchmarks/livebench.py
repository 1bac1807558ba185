"""LiveBench: recent questions with objective answers, in six categories, each a dataset of its own on the hub."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odar.evals.benchmarks.base import About, Task
from odar.evals.benchmarks.dataset import Dataset, Place
from odar.evals.benchmarks.files import Row
from odar.evals.benchmarks.hub import Hub
from odar.evals.scorers.livebench import instruction_score, livebench, program_score
from odar.types import Query

_CATEGORIES = ("coding", "math", "reasoning", "language", "data_analysis", "instruction_following")
_PROGRAM = ("tests", "partial_solution", "original_json", "public_test_cases", "private_test_cases")


def _tasks(row: Row, place: Place) -> Iterator[Task]:
    """Questions that a later release took back stay in the files, dated: they are left out."""
    if row.get("livebench_removal_date"):
        return
    task = row.get("task") or row["category"]
    gold: dict[str, Any] = {"task": task, "truth": row.get("ground_truth")}
    if row.get("instruction_id_list"):
        given = [{k: v for k, v in (kwargs or {}).items() if v is not None} for kwargs in row["kwargs"]]
        gold |= {"instructions": row["instruction_id_list"], "arguments": given}
    elif row["category"] == "coding":
        gold["program"] = {field: row.get(field) for field in _PROGRAM}
    yield Task(row["question_id"], Query(row["turns"][0]), gold, f"{row['category']}, {task}")


def _score(task: Task, response: str, answer: str) -> float:
    if "instructions" in task.gold:
        return instruction_score(task.gold["instructions"], task.gold["arguments"], response)
    if "program" in task.gold:
        return program_score(task.gold["program"], response)
    return livebench(task.gold["task"], task.gold["truth"], response, answer)


_PARTS = tuple(
    Dataset(f"livebench/{category}", "Coding", "similarity", Hub(f"livebench/{category}"), _tasks, _score)
    for category in _CATEGORIES
)


@dataclass(frozen=True, slots=True)
class LiveBench:
    """The six categories, one after the other."""

    parts: tuple[Dataset, ...] = _PARTS
    name: str = "livebench"
    category: str = "Coding"
    metric: str = "similarity"

    @property
    def about(self) -> About:
        """Source, size, licence."""
        return About(
            source="hub:livebench/{" + ",".join(_CATEGORIES) + "} (default, test)",
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
        return _score(task, response, answer)


BENCHMARK = LiveBench()
