"""Questions over paragraphs: how they are put, and how their short answers are scored."""

from __future__ import annotations

from collections.abc import Sequence

from odar.evals.benchmarks.base import Task
from odar.evals.scorers.spans import exact_match, f1


def read_and_ask(paragraphs: Sequence[tuple[str, str]], question: str) -> str:
    """Titled paragraphs, then the question.

    >>> print(read_and_ask([("Oslo", "A city.")], "Where?"))
    Oslo
    A city.
    <BLANKLINE>
    Question: Where?
    <BLANKLINE>
    Answer in as few words as possible.
    """
    read = [f"{title.strip()}\n{text.strip()}" for title, text in paragraphs]
    return "\n\n".join([*read, f"Question: {question.strip()}", "Answer in as few words as possible."])


def match_figures(task: Task, response: str, answer: str) -> dict[str, tuple[float, ...]]:
    """Exact match and F1, as both sets publish them."""
    return {"EM": (exact_match(task.gold, answer),), "F1": (f1(task.gold, answer),)}
