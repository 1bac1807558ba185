"""Questions in JSON Lines files: one reader for `odar batch`, `odar calibrate` and `odar eval collect`.

Every line is checked before the first call is paid for, and an error names the lines at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from odar.errors import InputError
from odar.files import user_path
from odar.formats import MAX_NUMBER, load_json
from odar.inputs import check_text, load_image
from odar.policy.equivalence import equivalent
from odar.recording.schema import Task
from odar.types import Path, Query

ReadConversation = Callable[[list[Any]], Query]
"""Makes a query of a list of messages in the form of OpenAI's clients; raises ValueError for anything else."""
T = TypeVar("T")
Decode = Callable[[dict[str, Any], int, FilePath], T]
"""Makes a value of an object, its line number and the file's folder; raises one of `_FAULTS` if it cannot."""
_FAULTS = (ValueError, KeyError, TypeError, AttributeError, InputError, msgspec.ValidationError)
_Number = Annotated[float, msgspec.Meta(ge=0, le=MAX_NUMBER)]
_Name = Annotated[str, msgspec.Meta(min_length=1)]


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """What a line may hold: `query` or `messages` is required; to calibrate or record, `answer` or `gold` too."""

    query: Any = None
    messages: Any = None
    image: Any = None
    id: int | _Name | None = None
    answer: str | int | float | None = None
    accept: list[str | int | float] = []
    gold: Any = None
    set: str = ""
    split: Literal["", "calibrate", "judge"] = ""
    stratum: str = ""
    domain: str = ""
    time: _Number | None = None
    reasoning: str = ""
    path: Path | None = None
    max_cost: _Number | None = None
    seed: Annotated[int, msgspec.Meta(ge=0)] | None = None
    meta: Any = None
    difficulty: Any = None
    """This one and the next are for `odar calibrate --difficulty`."""
    correct: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Task):
    """One line of a file: a task whose `gold` is a list of accepted answers, empty if none is known."""

    path: Path | None = None
    max_cost_usd: float | None = None
    seed: int | None = None
    set: str = ""
    by_benchmark: bool = False
    """Whether `gold` is instead what the scorer of the benchmark named by `set` compares with."""


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """A set of a user's own questions, scored by equivalence with any accepted answer, or by another scorer."""

    name: str
    category: str = "Own questions"
    metric: str = "accuracy"
    scorer: Callable[[Sequence[str], str], float] | None = None
    """Compares the accepted answers with an answer; None: equivalence."""

    def score(self, task: Task, response: str, answer: str) -> float:
        """Return how right an answer is, from 0 to 1."""
        if self.scorer is not None:
            return self.scorer(task.gold, answer)
        return float(any(equivalent(answer, right) for right in task.gold))


def load_questions(
    path: str | FilePath, read_conversation: ReadConversation | None = None, *, answers: bool = False
) -> list[Question]:
    """Read questions from a JSONL file; blank lines are skipped, a missing id is the number of the line.

    Without `read_conversation` messages are refused, with `answers` questions whose right answer is unknown.

    Raises:
        InputError: the file cannot be read, or a line is not a question; names the first bad lines.
    """
    lines_of: dict[tuple[str, str], int] = {}

    def decode(row: dict[str, Any], number: int, folder: FilePath) -> Question:
        question = _question(row, number, folder, read_conversation)
        if answers and not question.by_benchmark and not question.gold:
            raise ValueError("has no answer: give the right one as answer")
        first = lines_of.setdefault((question.set, question.id), number)
        if first != number:
            raise ValueError(f"id {question.id!r} is that of line {first} too")
        return question

    return load_lines(path, decode, "questions")


def starter_questions(limit: int | None = None) -> list[Question]:
    """Return the original questions over eight domains that ship with ODAR, or some of them, evenly spread.

    >>> len(starter_questions()), len(starter_questions(160))
    (236, 160)
    """
    text = resources.files("odar.data").joinpath("starter.jsonl").read_bytes()

    def decode(row: dict[str, Any], number: int, folder: FilePath) -> Question:
        known = {name: value for name, value in row.items() if name in _Line.__struct_fields__}
        return _question(known, number, folder, None)

    questions = _parse(text, "starter", FilePath(), decode)
    count = len(questions) if limit is None else min(limit, len(questions))
    return [questions[i * len(questions) // count] for i in range(count)]


def load_lines(path: str | FilePath, decode: Decode[T], things: str) -> list[T]:
    """Read the objects of a JSONL file; `things` names what it should hold, for the error message: "questions".

    Raises:
        InputError: the file cannot be read, is empty, or has bad lines; names the first of them.
    """
    file = user_path(path)
    try:
        text = file.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    found = _parse(text, str(path), file.parent, decode)
    if not found:
        raise InputError(f"{path} holds no {things}")
    return found


def query_of(row: Mapping[str, Any], folder: FilePath, read_conversation: ReadConversation | None = None) -> Query:
    """Return the question of a row, with its image if it has one."""
    text, messages, image = row.get("query"), row.get("messages"), row.get("image")
    if (text is None) == (messages is None):
        raise ValueError("must have either query or messages")
    if messages is not None:
        if read_conversation is None:
            raise ValueError("messages are not supported here; use query")
        if not isinstance(messages, list) or not messages or image is not None:
            raise ValueError("messages must be a list of turns, with images inside them")
        return read_conversation(messages)
    written = _typed("query", text, str)
    check_text(written)
    return Query(written, (load_image(folder / _typed("image", image, str)),) if image else ())


def effort_of(row: Mapping[str, Any]) -> float | None:
    """Return a person's time, or else the length of the reference reasoning (SPEC 2.5).

    >>> effort_of({"time": 3}), effort_of({"reasoning": "two words"}), effort_of({})
    (3.0, 2.0, None)
    """
    if row.get("time") is not None:
        return float(_typed("time", row["time"], _Number))
    return float(len(row["reasoning"].split())) if row.get("reasoning") else None


def _typed(name: str, value: Any, kind: Any) -> Any:
    """Convert the value of a field; an error names the field."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{name}: {error}") from None


def _parse(text: bytes, source: str, folder: FilePath, decode: Decode[T]) -> list[T]:
    found: list[T] = []
    faults: list[str] = []
    for number, line in enumerate(text.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            found.append(decode(msgspec.convert(load_json(line), dict[str, Any]), number, folder))
        except _FAULTS as error:
            faults.append(f"line {number}: {f'lacks {error}' if isinstance(error, KeyError) else error}")
    if faults:
        more = f" (and {len(faults) - 3} more bad lines)" if len(faults) > 3 else ""
        raise InputError(f"{source}: {'; '.join(faults[:3])}{more}")
    return found


def _question(
    row: dict[str, Any], number: int, folder: FilePath, read_conversation: ReadConversation | None
) -> Question:
    line = msgspec.convert({name: value for name, value in row.items() if value is not None}, _Line)
    if line.gold is not None and not line.set:
        raise ValueError("gold needs set: the benchmark whose scorer reads it")
    accepted = [] if line.answer is None else [str(line.answer), *map(str, line.accept)]
    return Question(
        id=str(number if line.id is None else line.id),
        query=query_of(row, folder, read_conversation),
        gold=accepted if line.gold is None else line.gold,
        stratum=line.stratum or line.domain,
        effort=effort_of(row),
        split=line.split,
        path=line.path,
        max_cost_usd=line.max_cost,
        seed=line.seed,
        set=line.set,
        by_benchmark=line.gold is not None,
    )
