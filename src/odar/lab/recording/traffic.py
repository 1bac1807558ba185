"""Requests of a log: chat bodies, exports of other gateways, traces of ODAR, or questions; a random sample of them.

A log may be long, so a fixed number of its rows is drawn at random while it is read, and only these are parsed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from odar.errors import InputError, one_line, plural
from odar.formats import load_json
from odar.lab.recording.files import existing_file, read_table, report_damage
from odar.lab.recording.header import digest_json
from odar.lab.recording.importers import COLUMNS
from odar.lab.recording.questions import ReadChat
from odar.lab.recording.schema import Task
from odar.policy.kinds import Kind, request_kind

DRAWN = 2_000
"""Rows that are drawn from a log, with a seed."""
SEED = 42
NOT_COMPARED = (Kind.OPEN_ENDED, Kind.TOOL_CALL)
"""Kinds of requests that take one call, and whose answers are not compared (SPEC 9.3b)."""
_BODY_FIELDS = ("tools", "tool_choice", "response_format", "n")
"""Fields of a chat body that say which kind of request it is; sampling is the agents' own."""
_INSIDE = ("body", "request", "request_body", "kwargs", "proxy_server_request", "input", "document")
"""Fields in which exports keep the body of a request."""
_SYSTEM = ("system", "instructions")
_QUESTION = ("text", *COLUMNS["query"])


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests that were drawn from a log."""

    rows: int
    """Rows of the log."""
    compared: list[Task]
    """Different requests whose answers can be compared; `stratum` is the kind, `gold` the known right answers."""
    others: list[Task]
    """Different requests without a comparable answer."""
    repeated: int
    """Drawn rows whose request is the same as that of another one."""
    skipped: Mapping[str, int]
    """Drawn rows that are no requests, by reason."""


def read_traffic(place: str | Path, read_chat: ReadChat, drawn: int = DRAWN) -> Traffic:
    """Read a log, and draw some of its requests at random.

    Raises:
        InputError: the file cannot be read, or none of the drawn rows is a request.
    """
    path = existing_file(place)
    with report_damage(path, "cannot be read as a log", remedy=""):
        count, rows = _draw(_log_rows(path), drawn)
    tasks: dict[str, Task] = {}
    skipped: Counter[str] = Counter()
    repeated = 0
    for row in rows:
        try:
            task = _to_task(row, read_chat)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            skipped[one_line(error, 80) or type(error).__name__] += 1
            continue
        repeated += task.id in tasks
        tasks[task.id] = task
    if not tasks:
        first = f"; the first reason: {next(iter(skipped))}" if skipped else ": it is empty"
        raise InputError(
            f"{place} holds no requests in {plural(count, 'row')}{first}. A row is a JSON object with messages, "
            "or query; traces of ODAR need store.content = true"
        )
    compared = [task for task in tasks.values() if task.stratum not in NOT_COMPARED]
    others = [task for task in tasks.values() if task.stratum in NOT_COMPARED]
    return Traffic(count, compared, others, repeated, skipped)


def _log_rows(path: Path) -> Iterator[bytes | Mapping[str, Any]]:
    """The rows of a log; the lines of a text file are not parsed yet."""
    if path.suffix in (".csv", ".parquet", ".gz", ".json"):
        yield from read_table(path)
    else:
        with path.open("rb") as lines:
            yield from (line for line in lines if line.strip())


def _draw(rows: Iterable[Any], size: int) -> tuple[int, list[Any]]:
    """The number of rows, and `size` of them at random, each with the same probability."""
    generator = np.random.default_rng(SEED)
    kept: list[Any] = []
    count = 0
    for count, row in enumerate(rows, 1):
        if len(kept) < size:
            kept.append(row)
        elif (place := int(generator.integers(count))) < size:
            kept[place] = row
    return count, kept


def _to_task(row: Any, read_chat: ReadChat) -> Task:
    """The task of a row, whose id is a hash of its content, so that a longer log has the same ids."""
    if isinstance(row, bytes):
        try:
            row = load_json(row)
        except ValueError:
            raise ValueError("a line is not JSON") from None
    query = read_chat(chat_body(row))
    if not query.text.strip() and not query.images:
        raise ValueError("the request has no text of a user")
    gold = next((row[name] for name in COLUMNS["gold"] if row.get(name) not in (None, "")), None)
    if gold is None and "query" in row and "model" not in row:
        gold = row.get("answer")
    accepted = gold if isinstance(gold, list) else [] if gold is None else [str(gold)]
    return Task(digest_json(query), query, [str(each) for each in accepted], request_kind(query).kind)


def chat_body(row: Mapping[str, Any]) -> dict[str, Any]:
    """The chat body in a row of a log, with the fields that matter for its kind.

    It may be the row itself, inside it, or a JSON text; a conversation ends with a turn of the user or of a tool.

    >>> chat_body({"custom_id": "1", "body": {"input": "Why?", "instructions": "Be brief."}})["messages"]
    [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'Why?'}]
    """
    if not isinstance(row, Mapping):
        raise ValueError("a row is not a JSON object")
    found = _find_body(row, 3)
    if found is None:
        if (row.get("document") or {}).get("content") is False:
            raise ValueError("traces without content: set store.content = true to record texts")
        raise ValueError("a row has no messages, prompt, query or question")
    return found


def _find_body(value: Any, levels: int) -> dict[str, Any] | None:
    value = _parsed(value)
    if not isinstance(value, Mapping) or not levels:
        return None
    turns = _parsed(value.get("messages") or value.get("input"))
    if isinstance(turns, str) and turns.strip():
        turns = [{"role": "user", "content": turns}]
    if not (
        isinstance(turns, list) and turns and all(isinstance(each, Mapping) and "role" in each for each in turns)
    ):
        for name in _INSIDE:
            if (inside := _find_body(value.get(name), levels - 1)) is not None:
                return inside
        query = value.get("query")
        texts = [query.get("text") if isinstance(query, Mapping) else None, *map(value.get, _QUESTION)]
        text = next((each for each in texts if isinstance(each, str) and each.strip()), None)
        if text is None:
            return None
        turns = [{"role": "user", "content": text}]
    turns = [dict(turn) for turn in turns]
    while turns and turns[-1].get("role") == "assistant":  # what the model replied
        turns.pop()
    system = next((value[name] for name in _SYSTEM if value.get(name)), None)
    if system and turns and turns[0].get("role") not in ("system", "developer"):
        turns.insert(0, {"role": "system", "content": system})
    return {"messages": turns, **{name: value[name] for name in _BODY_FIELDS if value.get(name)}}


def _parsed(value: Any) -> Any:
    """A value, parsed if a table holds it as a JSON text."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return load_json(value)
        except ValueError:
            return value
    return value
