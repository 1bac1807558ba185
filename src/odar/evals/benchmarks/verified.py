"""Benchmarks of rules: instructions, LiveBench's tasks, patches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odar.evals.benchmarks.base import Dataset, Place, Row, Task
from odar.evals.scorers.ifeval import CHECKS, follow
from odar.evals.scorers.livebench import instruction_score, livebench
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


def _livebench_tasks(row: Row, place: Place) -> Iterator[Task]:
    """Questions that a later release took back stay in the files, dated: they are left out."""
    if row.get("livebench_removal_date"):
        return
    task = row.get("task") or row["category"]
    gold: dict[str, Any] = {"task": task, "truth": row.get("ground_truth")}
    if row.get("instruction_id_list"):
        given = [{k: v for k, v in (kwargs or {}).items() if v is not None} for kwargs in row["kwargs"]]
        gold |= {"instructions": row["instruction_id_list"], "arguments": given}
    yield Task(row["question_id"], Query(row["turns"][0]), gold, f"{row['category']}, {task}")


def _livebench_score(task: Task, response: str, answer: str) -> float:
    if "instructions" in task.gold:
        return instruction_score(task.gold["instructions"], task.gold["arguments"], response)
    return livebench(task.gold["task"], task.gold["truth"], response, answer)


LIVEBENCH = Dataset.named("livebench", _livebench_tasks, _livebench_score)


def _swe_bench_tasks(row: Row, place: Place) -> Iterator[Task]:
    """Yield tasks in the oracle form: `text` holds the issue and the files to change, so one call can answer."""
    text = row.get("text") or f"{row['problem_statement'].strip()}\n\nAnswer with a patch in unified diff format."
    yield Task(row["instance_id"], Query(text), row["instance_id"], row["repo"])


SWE_BENCH = Dataset.named("swe_bench", _swe_bench_tasks)
