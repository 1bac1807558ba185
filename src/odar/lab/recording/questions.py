"""Questions in JSON Lines files: one reader for `odar batch`, `odar calibrate` and `odar eval collect` (SPEC 8.3).

Every line is checked before the first call is paid for, and an error names the lines at fault.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from odar.errors import InputError, did_you_mean
from odar.files import read_errors, user_path
from odar.formats import MAX_NUMBER, load_json
from odar.inputs import check_text, load_image
from odar.lab.recording.schema import Task, TaskSet
from odar.policy.equivalence import equivalent
from odar.types import Query, Route

ReadChat = Callable[[Mapping[str, Any]], Query]
"""Makes a query of a chat body in the form of OpenAI's clients; raises ValueError for anything else."""
T = TypeVar("T")
L = TypeVar("L", bound="QueryLine")
Decode = Callable[[L, int, Path], T]
"""Makes a value of a line, its number and the file's folder; raises ValueError or InputError if it cannot."""
_Number = Annotated[float, msgspec.Meta(ge=0, le=MAX_NUMBER)]
_Name = Annotated[str, msgspec.Meta(min_length=1)]


class QueryLine(msgspec.Struct):
    """A line of a file: `query` or `messages` is required."""

    query: str | None = None
    messages: Any = None
    image: str | None = None
    time: _Number | None = None
    reasoning: str = ""

    def to_query(self, folder: Path, read_chat: ReadChat | None = None) -> Query:
        if (self.query is None) == (self.messages is None):
            raise ValueError("must have either query or messages")
        if self.query is not None:
            check_text(self.query)
            return Query(self.query, (load_image(folder / self.image),) if self.image else ())
        if read_chat is None:
            raise ValueError("messages are not supported here; use query")
        if not isinstance(self.messages, list) or not self.messages or self.image is not None:
            raise ValueError("messages must be a list of turns, with images inside them")
        return read_chat({"messages": self.messages})

    @property
    def effort(self) -> float | None:
        """A person's time, or else the length of the reference reasoning (SPEC 2.5).

        >>> QueryLine(time=3.0).effort, QueryLine(reasoning="two words").effort, QueryLine().effort
        (3.0, 2.0, None)
        """
        return self.time if self.time is not None else float(len(self.reasoning.split())) or None


class _QuestionLine(QueryLine, forbid_unknown_fields=True):
    """A question; to calibrate or record, it needs `answer` or `gold`. An unknown field is a typing error."""

    id: int | _Name | None = None
    answer: str | int | float | None = None
    accept: list[str | int | float] = []
    gold: Any = None
    set: str = ""
    split: Literal["", "calibrate", "held-out"] = ""
    stratum: str = ""
    domain: str = ""
    path: Route | None = None
    max_cost_usd: _Number | None = None
    seed: Annotated[int, msgspec.Meta(ge=0)] | None = None
    meta: Any = None
    difficulty: Any = None
    """This one and the next are for `odar train`."""
    correct: Any = None
    level: Any = None
    """This one and the next are notes of the starter questions."""
    kind: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Task):
    """One line of a file: a task whose `gold` is a list of accepted answers, empty if none is known."""

    path: Route | None = None
    max_cost_usd: float | None = None
    seed: int | None = None
    set: str = ""
    by_benchmark: bool = False
    """Whether `gold` is instead what the grader of the benchmark named by `set` compares with."""


def question_set(
    name: str, metric: str = "accuracy", grader: Callable[[Sequence[str], str], float] | None = None
) -> TaskSet:
    """A set of a user's own questions, each with an accepted answer or a list of them.

    `grader` compares the accepted answers with an answer; by default an answer must be equivalent to one of them.
    """
    return TaskSet(name=name, category="Own questions", metric=metric, score=partial(_score_own, grader))


def _score_own(
    grader: Callable[[Sequence[str], str], float] | None, task: Task, response: str, answer: str
) -> float:
    accepted = [str(each) for each in (task.gold if isinstance(task.gold, list) else [task.gold])]
    return grader(accepted, answer) if grader else float(any(equivalent(answer, right) for right in accepted))


def load_questions(path: str | Path, read_chat: ReadChat | None = None, *, answers: bool = False) -> list[Question]:
    """Read questions from a JSONL file; blank lines are skipped, a missing id is the number of the line.

    Without `read_chat` messages are refused, with `answers` questions whose right answer is unknown.

    Raises:
        InputError: the file cannot be read, or a line is not a question; names the first bad lines.
    """
    lines_of: dict[tuple[str, str], int] = {}

    def decode(line: _QuestionLine, number: int, folder: Path) -> Question:
        if line.gold is not None and not line.set:
            raise ValueError("gold needs set: the benchmark whose grader reads it")
        accepted = [] if line.answer is None else [str(line.answer), *map(str, line.accept)]
        question = Question(
            id=str(number if line.id is None else line.id),
            query=line.to_query(folder, read_chat),
            gold=accepted if line.gold is None else line.gold,
            stratum=line.stratum or line.domain,
            effort=line.effort,
            split=line.split,
            path=line.path,
            max_cost_usd=line.max_cost_usd,
            seed=line.seed,
            set=line.set,
            by_benchmark=line.gold is not None,
        )
        if answers and not question.by_benchmark and not question.gold:
            raise ValueError("has no answer: give the right one as answer")
        first = lines_of.setdefault((question.set, question.id), number)
        if first != number:
            raise ValueError(f"id {question.id!r} is that of line {first} too")
        return question

    return load_lines(path, _QuestionLine, decode, "questions")


def starter_questions(limit: int | None = None) -> list[Question]:
    """The original questions over eight domains that ship with ODAR, or some of them, evenly spread.

    >>> len(starter_questions()), len(starter_questions(160))
    (236, 160)
    """
    with resources.as_file(resources.files("odar.data").joinpath("starter.jsonl")) as path:
        questions = load_questions(path)
    count = len(questions) if limit is None else min(limit, len(questions))
    return [questions[i * len(questions) // count] for i in range(count)]


def load_lines(path: str | Path, kind: type[L], decode: Decode[L, T], contents: str) -> list[T]:
    """The objects of a JSONL file; `contents` names what it should hold, for the error message: "questions".

    Raises:
        InputError: the file cannot be read, is empty, or has bad lines; names the first of them.
    """
    file = user_path(path)
    with read_errors(str(path)):
        text = file.read_bytes()
    found: list[T] = []
    lines_of: dict[str, list[int]] = {}
    for number, line in enumerate(text.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            found.append(decode(_read_line(line, kind), number, file.parent))
        except (ValueError, InputError) as error:
            lines_of.setdefault(str(error), []).append(number)
    if lines_of:
        faults = [
            f"line {lines[0]}{f' and {len(lines) - 1} more' if lines[1:] else ''}: {fault}"
            for fault, lines in lines_of.items()
        ]
        more = f" (and {len(faults) - 3} more)" if len(faults) > 3 else ""
        raise InputError(f"{path}: {'; '.join(faults[:3])}{more}")
    if not found:
        raise InputError(f"{path} holds no {contents}")
    return found


def _read_line(line: bytes, kind: type[L]) -> L:
    try:
        row = msgspec.convert(load_json(line), dict[str, Any])
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON ({error}); every line is one JSON object") from None
    given = {name: value for name, value in row.items() if value is not None}
    known = kind.__struct_fields__
    if kind.__struct_config__.forbid_unknown_fields and (unknown := [name for name in given if name not in known]):
        hint = did_you_mean(unknown[0], known)
        raise ValueError(f"unknown field {unknown[0]!r}{hint} (known: {', '.join(known)})")
    return msgspec.convert(given, kind)
