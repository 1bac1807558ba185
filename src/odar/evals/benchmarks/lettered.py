"""Benchmarks of lettered options: the gold and the scorer that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.options import ask, choices_gold
from odar.evals.scorers.choice import LETTERS, choice
from odar.types import Query


def choice_task(name: str, question: str, choices: Mapping[str, Sequence[str]], key: str) -> Task:
    """A task of Ai2's layout, whose choices have `text` and `label`.

    Some rows number their options: the place of the key counts, not its name.
    """
    options, letter = choices["text"], LETTERS[choices["label"].index(key)]
    return Task(name, Query(ask(question, options)), choices_gold(letter, options))


def score_choice(task: Task, response: str, answer: str) -> float:
    """Whether the answer names the right option; its gold is that of `choices_gold`."""
    return choice(task.gold["letter"], answer, task.gold["options"])
