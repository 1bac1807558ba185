"""Questions with known answers: a user's own JSONL file, or the starter set that ships with ODAR."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from odar.errors import InputError
from odar.formats import load_json
from odar.fusion.equivalence import equivalent
from odar.images import load_image
from odar.types import Query


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
    file = Path(path).expanduser()
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    items = list(_parse(text, str(path), file.parent))
    if not items:
        raise InputError(f"{path} holds no questions")
    if len({item.id for item in items}) < len(items):
        raise InputError(f"{path}: two lines have the same id; give each its own or leave them out")
    return items


def starter_items(limit: int | None = None) -> list[Item]:
    """The original questions over eight domains that ship with ODAR, or some of them spread evenly over the file.

    >>> len(starter_items()), len(starter_items(160))
    (236, 160)
    """
    text = resources.files("odar.data").joinpath("starter.jsonl").read_text(encoding="utf-8")
    items = list(_parse(text, "starter", Path()))
    count = len(items) if limit is None else min(limit, len(items))
    return [items[i * len(items) // count] for i in range(count)]


def _parse(text: str, source: str, folder: Path) -> Iterator[Item]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield _item(load_json(line), number, folder)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            why = f"lacks {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(f"{source}, line {number} is not a question with an answer: {why}") from None


def _item(row: dict[str, Any], number: int, folder: Path) -> Item:
    query, answer = row["query"], row["answer"]
    if not isinstance(query, str) or not query.strip():
        raise ValueError(f"query is {query!r}")
    if not isinstance(answer, str | int | float) or isinstance(answer, bool):
        raise ValueError(f"answer is {answer!r}")
    images = (load_image(folder / row["image"]),) if row.get("image") else ()
    effort = row.get("time")
    if effort is None and row.get("reasoning"):
        effort = len(row["reasoning"].split())
    return Item(
        id=str(row.get("id", number)),
        query=Query(query, images),
        answers=(str(answer), *map(str, row.get("accept", ()))),
        effort=None if effort is None else float(effort),
        domain=str(row.get("domain", "")),
    )
