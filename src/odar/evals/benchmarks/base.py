"""What every benchmark is, and where to find them by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from odar.registry import Registry
from odar.types import Query


@dataclass(frozen=True, slots=True)
class Task:
    """One item of a benchmark: what is asked, and what its scorer needs to judge a response."""

    id: str
    """Unique within its benchmark, the same on every load."""
    query: Query
    gold: Any
    """JSON: whatever the benchmark's own scorer compares with."""
    stratum: str = ""
    """Subject, level or task within the benchmark, for stratified sampling (SPEC 7.4)."""
    effort: float | None = None
    """Human time or reference-reasoning length, where the data has it (SPEC 2.5)."""
    meta: dict[str, Any] = field(default_factory=dict)
    """JSON: anything else the scorer or a report wants."""


class Benchmark(Protocol):
    """A named set of tasks with its official metric."""

    @property
    def name(self) -> str:
        """As users type it: `gsm8k`."""
        ...

    @property
    def category(self) -> str:
        """One of the paper's eight."""
        ...

    @property
    def metric(self) -> str:
        """What a score of 1 means: accuracy, EM, F1, pass@1, similarity, proof."""
        ...

    def load(self, folder: Path | None = None) -> Iterator[Task]:
        """The tasks, from a local folder or else from the hub.

        Raises:
            InputError: the data is not there, is gated, or is not what it should be; says what to do.
        """
        ...

    def score(self, task: Task, response: str, answer: str) -> float:
        """How right a response is, from 0 to 1; `answer` is the final answer that was parsed from it."""
        ...


BENCHMARKS: Registry[Benchmark] = Registry("benchmark", {}, group="odar.benchmarks")
"""Benchmarks by name."""
