"""The questions of a batch: a JSONL file, checked line by line before the first of them is paid for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from odar.batch.journal import digest_of
from odar.engine import Odar
from odar.errors import InputError
from odar.files import user_path
from odar.formats import LARGEST, load_json
from odar.images import load_image
from odar.question import check_text
from odar.types import Path, Query

FIELDS = ("id", "query", "messages", "image", "path", "max_cost", "seed")
ReadConversation = Callable[[list[Any]], Query]
"""Makes a query of a list of messages as clients write them; raises ValueError where it is none."""


@dataclass(frozen=True, slots=True)
class Question:
    """One line of the file."""

    id: str
    query: Query
    path: Path | None = None
    max_cost_usd: float | None = None
    seed: int | None = None


def load_questions(path: str | FilePath, read_conversation: ReadConversation) -> list[Question]:
    """Questions from a JSONL file; blank lines are skipped, an id that is left out is the line's number.

    Raises:
        InputError: the file cannot be read, or a line is not a question; names the first bad lines.
    """
    file = user_path(path)
    try:
        lines = file.read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    questions: list[Question] = []
    faults: list[str] = []
    lines_of: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            question = _question(load_json(line), number, file.parent, read_conversation)
            if question.id in lines_of:
                raise ValueError(f"id {question.id!r} is that of line {lines_of[question.id]} too")
        except (ValueError, TypeError, InputError) as error:
            faults.append(f"line {number}: {error}")
        else:
            lines_of[question.id] = number
            questions.append(question)
    if faults:
        more = f" (and {len(faults) - 3} more bad lines)" if len(faults) > 3 else ""
        raise InputError(f"{path}: {'; '.join(faults[:3])}{more}")
    if not questions:
        raise InputError(f"{path} holds no questions")
    return questions


def digest_question(question: Question, odar: Odar, seed: int | None) -> str:
    """What an answer depends on, in short: the question, the models and how they are asked."""
    settings = odar.settings
    return digest_of(
        *(dataclasses.replace(question, id=""), seed if question.seed is None else question.seed, settings.seed),
        *(settings.fast, settings.slow, settings.routing, settings.dispatch, settings.fusion, settings.limits),
        {step.value: prompt.md5 for step, prompt in odar.prompts.items()},
    )


def _question(row: Any, number: int, folder: FilePath, read_conversation: ReadConversation) -> Question:
    if not isinstance(row, dict):
        raise ValueError(f"is {_kind(row)}, not an object with a query")
    unknown = sorted(row.keys() - set(FIELDS))
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r} (known: {', '.join(FIELDS)})")
    return Question(
        id=_id(row.get("id"), number),
        query=_query(row, folder, read_conversation),
        path=_path(row.get("path")),
        max_cost_usd=_number(row, "max_cost"),
        seed=_seed(row.get("seed")),
    )


def _query(row: Mapping[str, Any], folder: FilePath, read_conversation: ReadConversation) -> Query:
    text, messages, image = row.get("query"), row.get("messages"), row.get("image")
    if (text is None) == (messages is None):
        raise ValueError("must have either query or messages")
    if messages is not None:
        if not isinstance(messages, list) or not messages or image is not None:
            raise ValueError("messages must be a list of turns, with images inside them")
        return read_conversation(messages)
    if not isinstance(text, str):
        raise ValueError(f"query is {_kind(text)}, not text")
    check_text(text)
    if image is not None and not isinstance(image, str):
        raise ValueError(f"image is {_kind(image)}, not a file's name")
    return Query(text, (load_image(folder / image),) if image else ())


def _id(value: Any, number: int) -> str:
    if value is None:
        return str(number)
    if not isinstance(value, str | int) or isinstance(value, bool) or value == "":
        raise ValueError(f"id is {_kind(value)}, not a name or a whole number")
    return str(value)


def _path(value: Any) -> Path | None:
    if value is not None and value not in list(Path):
        raise ValueError(f"path {value!r} is not one of: {', '.join(Path)}")
    return None if value is None else Path(value)


def _number(row: Mapping[str, Any], name: str) -> float | None:
    value = row.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LARGEST:
        raise ValueError(f"{name} is {value!r}, not a number of at least 0")
    return float(value)


def _seed(value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise ValueError(f"seed is {value!r}, not a whole number of at least 0")
    return value


def _kind(value: Any) -> str:
    """What a JSON value is, in a word; its content may be long, or nobody's business.

    >>> _kind([1, 2]), _kind("")
    ('a list', 'an empty text')
    """
    if value == "":
        return "an empty text"
    names = {list: "a list", dict: "an object", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
