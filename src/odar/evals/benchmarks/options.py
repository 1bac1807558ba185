"""Multiple choice: how options are shown, and how pictures of a row become part of a query."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from odar.evals.scorers.choice import LETTERS
from odar.images import recognise
from odar.types import Image


def ask(question: str, options: Sequence[str], before: str = "") -> str:
    """A question with lettered options.

    >>> print(ask("Which is red?", ["the sky", "blood"]))
    Which is red?
    <BLANKLINE>
    A. the sky
    B. blood
    <BLANKLINE>
    Answer with the letter of the right option.
    """
    listed = "\n".join(f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False))
    parts = (before.strip(), question.strip(), listed, "Answer with the letter of the right option.")
    return "\n\n".join(part for part in parts if part)


def shuffled(right: Sequence[str], wrong: Sequence[str], key: str) -> tuple[list[str], list[int]]:
    """All options in an order that depends on the key alone, and where the right ones are.

    >>> shuffled(["Paris"], ["Rome", "Oslo"], "q1") == shuffled(["Paris"], ["Rome", "Oslo"], "q1")
    True
    """
    options = [*right, *wrong]
    order = list(range(len(options)))
    random.Random(key).shuffle(order)  # noqa: S311 - a stable order, not a secret
    return [options[i] for i in order], [place for place, i in enumerate(order) if i < len(right)]


def choices_gold(letter: str, options: Sequence[str]) -> dict[str, Any]:
    """The gold of a multiple-choice task: the right letter, and the options for answers that quote one."""
    return {"letter": letter, "options": list(options)}


def picture(value: Any) -> tuple[Image, ...]:
    """A Parquet image field as part of a query; nothing where the row has none."""
    data = value.get("bytes") if isinstance(value, dict) else None
    return (recognise(data, "a picture of this row"),) if data else ()
