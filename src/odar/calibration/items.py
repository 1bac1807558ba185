"""Questions with known answers: a user's own JSONL file, or the starter set that ships with ODAR."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from odar.calibration.jsonl import effort_of, load_lines, parse_lines, query_of
from odar.errors import InputError
from odar.policy.equivalence import equivalent
from odar.types import Query

_FAULT = "is not a question with an answer"


@dataclass(frozen=True, slots=True)
class Item:
    """A question and what counts as right."""

    id: str
    query: Query
    answers: tuple[str, ...]
    """Any of these is right."""
    effort: float | None = None
    """Human time where the data has it, else the length of the reference reasoning (SPEC 2.5)."""
    domain: str = ""

    def is_right(self, answer: str) -> bool:
        """Whether an answer is one of the right ones."""
        return any(equivalent(answer, right) for right in self.answers)


def load_items(path: str | Path) -> list[Item]:
    """Items from a JSONL file: a line has query and answer, optionally id, accept, time, reasoning, image.

    Raises:
        InputError: the file cannot be read, or a line is not such an object; names the line.
    """
    items = load_lines(path, _item, _FAULT, "questions")
    if len({item.id for item in items}) < len(items):
        raise InputError(f"{path}: two lines have the same id; give each its own or leave them out")
    return items


def starter_items(limit: int | None = None) -> list[Item]:
    """The original questions over eight domains that ship with ODAR, or some of them spread evenly over the file.

    >>> len(starter_items()), len(starter_items(160))
    (236, 160)
    """
    text = resources.files("odar.data").joinpath("starter.jsonl").read_text(encoding="utf-8")
    items = list(parse_lines(text, "starter", Path(), _item, _FAULT))
    count = len(items) if limit is None else min(limit, len(items))
    return [items[i * len(items) // count] for i in range(count)]


def _item(row: dict[str, Any], number: int, folder: Path) -> Item:
    query, answer = query_of(row, folder), row["answer"]
    if not isinstance(answer, str | int | float) or isinstance(answer, bool):
        raise ValueError(f"answer is {answer!r}")
    accepted = row.get("accept") or ()
    if not isinstance(accepted, list | tuple):
        raise ValueError(f"accept is {accepted!r}, not a list of answers")
    return Item(
        id=str(number if row.get("id") is None else row["id"]),
        query=query,
        answers=(str(answer), *map(str, accepted)),
        effort=effort_of(row),
        domain=str(row.get("domain", "")),
    )
