"""A benchmark for tests: sums that a scripted agent can answer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from odar.lab.benchmarks.base import Benchmark
from odar.lab.recording.schema import Task
from odar.policy.equivalence import equivalent
from odar.types import Query


def sums(size: int = 8, **changes: Any) -> Benchmark:
    """`What is 7 + 0 ?`, seven being the item's number; every third is of stratum "third"."""
    usual = {"name": "sums", "category": "Mathematics", "metric": "accuracy", "source": "written here"}
    return Benchmark(**{**usual, "load": partial(_load, size), "score": _score, **changes})


def _load(size: int, folder: Path | None = None) -> Iterator[Task]:
    for i in range(size):
        yield Task(str(i), Query(f"What is {i} + 0 ?"), str(i), "third" if i % 3 == 0 else "other", float(i))


def _score(task: Task, response: str, answer: str) -> float:
    return float(equivalent(answer, task.gold))
