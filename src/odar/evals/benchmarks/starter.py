"""Starter: the 236 original questions over eight domains that ship with ODAR. Needs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from odar.evals.benchmarks.base import About, Task
from odar.policy.equivalence import equivalent
from odar.recording.questions import starter_questions

_ABOUT = About("shipped:odar/data/starter.jsonl", 236, "Apache-2.0", note="our own, not in the paper")


@dataclass(frozen=True, slots=True)
class Starter:
    """The shipped questions, scored by equivalence with any accepted answer."""

    name: str = "starter"
    category: str = "Starter"
    metric: str = "accuracy"
    about: About = _ABOUT

    def load(self, folder: Path | None = None) -> Iterator[Task]:
        """The questions; a folder makes no difference."""
        yield from (question.task for question in starter_questions())

    def score(self, task: Task, response: str, answer: str) -> float:
        """Whether the answer is one of the right ones."""
        return float(any(equivalent(answer, right) for right in task.gold))


BENCHMARK = Starter()
