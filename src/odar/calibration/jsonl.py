"""JSONL files of questions: read line by line, and refused by the line that is at fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from odar.errors import InputError
from odar.files import user_path
from odar.formats import LARGEST, load_json
from odar.images import load_image
from odar.question import check_text
from odar.types import Query

T = TypeVar("T")
Decode = Callable[[dict[str, Any], int, Path], T]
"""An object, the number of its line and the file's folder in; raises ValueError, KeyError, TypeError or
AttributeError, or InputError, where it is none of ours."""


def load_lines(path: str | Path, decode: Decode[T], fault: str, things: str) -> list[T]:
    """The objects of a file, one a line.

    Args:
        path: the file.
        decode: makes one of a line.
        fault: what to say of a bad line: "is not a question with an answer".
        things: what the file should hold: "questions".

    Raises:
        InputError: the file cannot be read, holds nothing, or has a bad line; names the line.
    """
    file = user_path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    found = list(parse_lines(text, str(path), file.parent, decode, fault))
    if not found:
        raise InputError(f"{path} holds no {things}")
    return found


def parse_lines(text: str, source: str, folder: Path, decode: Decode[T], fault: str) -> Iterator[T]:
    """The objects of a text; blank lines are skipped."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield decode(load_json(line), number, folder)
        except (ValueError, KeyError, TypeError, AttributeError, InputError) as error:
            why = f"lacks {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(f"{source}, line {number} {fault}: {why}") from None


def query_of(row: dict[str, Any], folder: Path) -> Query:
    """The question of a row, with its picture where it has one."""
    text = row["query"]
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"query is {text!r}")
    check_text(text)
    return Query(text, (load_image(folder / row["image"]),) if row.get("image") else ())


def effort_of(row: dict[str, Any]) -> float | None:
    """A person's time, or the length of the reference reasoning (SPEC 2.5).

    >>> effort_of({"time": 3}), effort_of({"reasoning": "two words"}), effort_of({})
    (3.0, 2.0, None)
    """
    effort = row.get("time")
    if effort is None:
        return float(len(row["reasoning"].split())) if row.get("reasoning") else None
    if isinstance(effort, bool) or not isinstance(effort, int | float) or not 0 <= effort <= LARGEST:
        raise ValueError(f"time is {effort!r}")
    return float(effort)
