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
    effort = _value(row, "time")
    if effort is None:
        return float(len(row["reasoning"].split())) if row.get("reasoning") else None
    return float(effort)


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
    name, path, seed = (_value(row, each) for each in ("id", "path", "seed"))
    answer, accepted = _value(row, "answer"), _value(row, "accept") or []
    return Question(
        id=str(number if name is None else name),
        query=query_of(row, folder, read_conversation),
        path=None if path is None else Path(path),
        max_cost_usd=_value(row, "max_cost"),
        seed=seed,
        answers=() if answer is None else (str(answer), *map(str, accepted)),
        gold=row.get("gold"),
        set=_value(row, "set") or "",
        split=_value(row, "split") or "",
        stratum=_value(row, "stratum") or _value(row, "domain") or "",
        effort=effort_of(row),
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LARGEST


_TEXT = (lambda value: isinstance(value, str), "text")
_NUMBER = (_is_number, "a number of at least 0")
_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "id": (
        lambda value: type(value) is int or (isinstance(value, str) and value != ""),
        "a name or a whole number",
    ),
    "answer": (lambda value: type(value) in (str, int, float), "a text or a number"),
    "accept": (lambda value: isinstance(value, list), "a list of answers"),
    "path": (lambda value: value in list(Path), f"one of: {', '.join(Path)}"),
    "split": (lambda value: value in SPLITS, f"one of: {', '.join(SPLITS[1:])}"),
    "seed": (lambda value: _is_number(value) and isinstance(value, int), "a whole number of at least 0"),
    **dict.fromkeys(("max_cost", "time"), _NUMBER),
    **dict.fromkeys(("set", "stratum", "domain"), _TEXT),
}
"""What a field may hold, and the name of that in an error message."""


def _value(row: Mapping[str, Any], name: str) -> Any:
    """Return a field, None if it is missing; raises ValueError if it holds something else than it may."""
    value = row.get(name)
    is_valid, expected = _CHECKS[name]
    if value is None or is_valid(value):
        return value
    is_short = type(value) in (int, float) or (type(value) is str and value and expected.startswith("one of"))
    found = repr(value) if is_short else _kind(value)
    raise ValueError(f"{name} is {found}, not {expected}")


def _kind(value: Any) -> str:
    """Name the type of a JSON value; its content may be long, or private.

    >>> _kind([1, 2]), _kind("")
    ('a list', 'an empty text')
    """
    if value == "":
        return "an empty text"
    names = {list: "a list", dict: "an object", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
