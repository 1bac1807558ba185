"""Benchmarks of lettered options: the gold and the scorer that they share."""

from __future__ import annotations

from odar.evals.benchmarks.base import Task
from odar.evals.scorers.choice import choice


def score_choice(task: Task, response: str, answer: str) -> float:
    """Whether the answer names the right option; its gold is that of `choices_gold`."""
    return choice(task.gold["letter"], answer, task.gold["options"])
