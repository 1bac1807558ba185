"""Questions in JSON Lines files: one reader for `odar batch`, `odar calibrate` and `odar eval collect`.

Every line is checked before the first call is paid for, and an error names the lines at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path as FilePath
from typing import Any, TypeVar

from odar.errors import InputError
from odar.files import user_path
from odar.formats import LARGEST, load_json
from odar.inputs import check_text, load_image
from odar.policy.equivalence import equivalent
from odar.recording.schema import SPLITS, Task
from odar.types import Path, Query

FIELDS = (
    *("id", "query", "messages", "image", "answer", "accept", "gold", "set", "split", "stratum", "domain"),
    *("time", "reasoning", "path", "max_cost", "seed", "meta", "difficulty", "correct"),
)
"""What a line may hold. `query` or `messages` is required; to calibrate or record, `answer` or `gold` too.
`difficulty` and `correct` are for `odar calibrate --difficulty`."""
ReadConversation = Callable[[list[Any]], Query]
"""Makes a query of a list of messages in the form of OpenAI's clients; raises ValueError for anything else."""
T = TypeVar("T")
Decode = Callable[[dict[str, Any], int, FilePath], T]
"""Makes a value of an object, its line number and the file's folder; raises ValueError, KeyError, TypeError,
AttributeError or InputError if it cannot."""


@dataclass(frozen=True, slots=True)
class Question:
    """One line of a file."""

    id: str
    query: Query
    path: Path | None = None
    max_cost_usd: float | None = None
    seed: int | None = None
    answers: tuple[str, ...] = ()
    """Any of these is right; empty if no answer is known."""
    gold: Any = None
    """In place of answers: what the scorer of the benchmark that `set` names compares with."""
    set: str = ""
    split: str = ""
    stratum: str = ""
    effort: float | None = None
    """Human time if the data has it, else the length of the reference reasoning (SPEC 2.5)."""

    @property
    def task(self) -> Task:
        """The question in the form that is recorded."""
        gold = list(self.answers) if self.gold is None else self.gold
        return Task(self.id, self.query, gold, self.stratum, self.effort, split=self.split)


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

    Args:
        path: the file.
        read_conversation: reads `messages`; without it they are refused.
        answers: refuse questions whose right answer is unknown.

    Raises:
        InputError: the file cannot be read, or a line is not a question; names the first bad lines.
    """
    lines_of: dict[tuple[str, str], int] = {}

    def decode(row: dict[str, Any], number: int, folder: FilePath) -> Question:
        question = _question(row, number, folder, read_conversation)
        if answers and not question.answers and question.gold is None:
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
        return _question({name: row[name] for name in FIELDS if name in row}, number, folder, None)

    questions = _parse(text, "starter", FilePath(), decode)
    count = len(questions) if limit is None else min(limit, len(questions))
    return [questions[i * len(questions) // count] for i in range(count)]


def load_lines(path: str | FilePath, decode: Decode[T], things: str) -> list[T]:
    """Read the objects of a JSONL file.

    Args:
        path: the file.
        decode: makes a value of each line.
        things: what the file should hold, for the error message: "questions".

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
    if not isinstance(text, str):
        raise ValueError(f"query is {_kind(text)}, not text")
    check_text(text)
    if image is not None and not isinstance(image, str):
        raise ValueError(f"image is {_kind(image)}, not the name of a file")
    return Query(text, (load_image(folder / image),) if image else ())


def effort_of(row: Mapping[str, Any]) -> float | None:
    """Return a person's time, or else the length of the reference reasoning (SPEC 2.5).

    >>> effort_of({"time": 3}), effort_of({"reasoning": "two words"}), effort_of({})
    (3.0, 2.0, None)
    """
    effort = row.get("time")
    if effort is None:
        return float(len(row["reasoning"].split())) if row.get("reasoning") else None
    return _number(row, "time")


def _parse(text: bytes, source: str, folder: FilePath, decode: Decode[T]) -> list[T]:
    found: list[T] = []
    faults: list[str] = []
    for number, line in enumerate(text.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            row = load_json(line)
            if not isinstance(row, dict):
                raise ValueError(f"is {_kind(row)}, not an object")
            found.append(decode(row, number, folder))
        except (ValueError, KeyError, TypeError, AttributeError, InputError) as error:
            faults.append(f"line {number}: {f'lacks {error}' if isinstance(error, KeyError) else error}")
    if faults:
        more = f" (and {len(faults) - 3} more bad lines)" if len(faults) > 3 else ""
        raise InputError(f"{source}: {'; '.join(faults[:3])}{more}")
    return found


def _question(
    row: dict[str, Any], number: int, folder: FilePath, read_conversation: ReadConversation | None
) -> Question:
    unknown = sorted(row.keys() - set(FIELDS))
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r} (known: {', '.join(FIELDS)})")
    if row.get("gold") is not None and not row.get("set"):
        raise ValueError("gold needs set: the benchmark whose scorer reads it")
    return Question(
        id=_id(row.get("id"), number),
        query=query_of(row, folder, read_conversation),
        path=_path(row.get("path")),
        max_cost_usd=_number(row, "max_cost"),
        seed=_seed(row.get("seed")),
        answers=_answers(row),
        gold=row.get("gold"),
        set=_text(row, "set"),
        split=_split(row),
        stratum=_text(row, "stratum") or _text(row, "domain"),
        effort=effort_of(row),
    )


def _answers(row: Mapping[str, Any]) -> tuple[str, ...]:
    answer, accepted = row.get("answer"), row.get("accept") or ()
    if answer is None:
        return ()
    if not isinstance(answer, str | int | float) or isinstance(answer, bool):
        raise ValueError(f"answer is {_kind(answer)}, not a text or a number")
    if not isinstance(accepted, list | tuple):
        raise ValueError(f"accept is {_kind(accepted)}, not a list of answers")
    return (str(answer), *map(str, accepted))


def _split(row: Mapping[str, Any]) -> str:
    split = _text(row, "split")
    if split not in SPLITS:
        raise ValueError(f"split {split!r} is not one of: {', '.join(SPLITS[1:])}")
    return split


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is {_kind(value)}, not text")
    return value or ""


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
    """Name the type of a JSON value; its content may be long, or private.

    >>> _kind([1, 2]), _kind("")
    ('a list', 'an empty text')
    """
    if value == "":
        return "an empty text"
    names = {list: "a list", dict: "an object", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
