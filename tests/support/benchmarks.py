"""A benchmark for tests: sums that a scripted agent can answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from odar.lab.benchmarks.base import BenchmarkInfo, Task
from odar.policy.equivalence import equivalent
from odar.types import Query

ABOUT = BenchmarkInfo("written here")


@dataclass(frozen=True)
class Sums:
    """`What is 7 + 0 ?`, seven being the item's number; every third is of stratum "third"."""

    size: int = 8
    name: str = "sums"
    category: str = "Mathematics"
    metric: str = "accuracy"
    about: BenchmarkInfo = ABOUT

    def load(self, folder: Path | None = None) -> Iterator[Task]:
        for i in range(self.size):
            yield Task(str(i), Query(f"What is {i} + 0 ?"), str(i), "third" if i % 3 == 0 else "other", float(i))

    def score(self, task: Task, response: str, answer: str) -> float:
        return float(equivalent(answer, task.gold))
