"""IFEval: prompts with instructions that a program can check."""

from __future__ import annotations

from collections.abc import Iterator

from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.dataset import Dataset, Place
from odar.evals.benchmarks.files import Row
from odar.evals.benchmarks.hub import Hub
from odar.evals.scorers.ifeval import CHECKS, follow
from odar.types import Query


def _tasks(row: Row, place: Place) -> Iterator[Task]:
    names = row["instruction_id_list"]
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        raise ValueError(f"unknown instructions {unknown}")
    given = [{k: v for k, v in (kwargs or {}).items() if v is not None} for kwargs in row["kwargs"]]
    gold = {"instructions": names, "arguments": given}
    yield Task(str(row["key"]), Query(row["prompt"]), gold, f"{len(names)} instruction{'s' * (len(names) > 1)}")


def _score(task: Task, response: str, answer: str) -> float:
    """Prompt-level strict, of the whole response."""
    return float(all(follow(task.gold["instructions"], task.gold["arguments"], response).strict))


def _figures(task: Task, response: str, answer: str) -> dict[str, tuple[bool, ...]]:
    followed = follow(task.gold["instructions"], task.gold["arguments"], response)
    return {
        "prompt-level strict": (all(followed.strict),),
        "instruction-level strict": followed.strict,
        "prompt-level loose": (all(followed.loose),),
        "instruction-level loose": followed.loose,
    }


BENCHMARK = Dataset(
    name="ifeval",
    category="Instruction",
    metric="accuracy",
    hub=Hub("google/IFEval", splits=("train",)),
    tasks=_tasks,
    scorer=_score,
    local=("ifeval/input_data.jsonl",),
    size=541,
    licence="Apache-2.0",
    note="prompt-level strict; `odar eval score ifeval` has the other three figures",
    plain=True,
    figures=_figures,
)
