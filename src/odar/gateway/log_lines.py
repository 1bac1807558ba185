"""One line of the log: what it says of a question or a failure, for people (text) or machines (json).

No line holds a prompt, an answer or a key, unless `store.content = true`.
"""

from __future__ import annotations

import json
import logging
import re
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from odar import errors
from odar.gateway.ports import Entry
from odar.observer import outgoing_headers
from odar.providers.failures import quotes

Line = Mapping[str, Any]
"""Its level, logger and message, and figures by name; None where one is unknown."""
_HEAD = ("time", "level", "logger", "message")
_BARE = re.compile(r"[^\s\"'=\\]+")
_OURS = {name for name, kind in vars(errors).items() if isinstance(kind, type)} | {"ApiError"}
"""Kinds of errors whose messages are written here, and hold neither key nor prompt."""


def request_line(entry: Entry, *, content: bool) -> Line:
    """The line of one question, in microseconds; `content` lets it quote the client."""
    spend = entry.trace.spend if entry.trace else entry.spend
    decision = entry.trace.decision if entry.trace else entry.decision
    line: dict[str, Any] = {
        "level": "info" if entry.status < 500 else "error",
        "logger": "odar.request",
        "message": "request",
        "request_id": entry.request_id,
        "trace_id": entry.trace_id,
        "key_id": entry.key_id,
        "endpoint": entry.endpoint,
        "model": entry.model[:100] if entry.trace or content else None,  # else it may be any text
        "path": decision.path.value if decision else None,
        "status": entry.status,
        "seconds": round(entry.seconds, 4),
        "stream": entry.stream,
        "calls": spend.calls if spend else 0,
        "cost_usd": spend.cost_usd if spend else 0.0,
    }
    if entry.trace and entry.trace.degradations:
        line["degraded"] = True
    if entry.error is not None:
        line["error"] = entry.error if content else _without_quotes(entry.error, entry)
    if headers := outgoing_headers():
        line["traceparent"] = headers.get("traceparent")
    return line


def record_line(record: logging.LogRecord, shared: Mapping[str, str], *, content: bool) -> Line:
    """A line of the logging module's, with what it shares with the other lines of its request."""
    message = record.getMessage()
    line = {
        "level": record.levelname.lower(),
        "logger": record.name,
        # Whoever logs a failure puts its text after the first line; it may quote somebody.
        "message": message if content else message.partition("\n")[0],
        **shared,
    }
    if record.exc_info and record.exc_info[1] is not None:
        line["exception"] = _exception(record.exc_info[1], content=content)
    return line


def as_json(line: Line) -> str:
    """The line as a JSON object."""
    return json.dumps({**line, "time": _clock(line["time"])}, ensure_ascii=False, default=str) + "\n"


def as_text(line: Line) -> str:
    """`time LEVEL logger message key=value …`, unknown left out; a value that could be misread stands in quotes.

    >>> as_text({"time": 0, "level": "info", "logger": "odar", "message": "ready", "on": "a b", "key": None})
    '1970-01-01T00:00:00.000Z INFO odar ready on="a b"\\n'
    """
    known = ((key, value) for key, value in line.items() if value is not None and key not in _HEAD)
    rest = "".join(f" {key}={_value(value)}" for key, value in known)
    said = errors.one_line(line["message"])
    return f"{_clock(line['time'])} {line['level'].upper()} {line['logger']} {said}{rest}\n"


def _without_quotes(error: str, entry: Entry) -> str:
    """Why: in full only where the words are ours. A client's mistake may quote it, an upstream the prompt."""
    texts = [message.text for message in entry.query.messages if message.text] if entry.query else []
    kind = error.partition(":")[0]
    return kind if entry.status < 500 or kind not in _OURS or quotes(error, texts) else error


def _value(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if _BARE.fullmatch(text) and text.isprintable() else json.dumps(text, ensure_ascii=True)


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _exception(error: BaseException, *, content: bool) -> str:
    """What was raised and where, innermost first; its message only with content, for it may quote somebody."""
    if content:
        return "".join(traceback.format_exception(error))
    frames = reversed(traceback.extract_tb(error.__traceback__))
    places = " < ".join(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames)
    cause = error.__cause__ or error.__context__
    behind = f"; after {_exception(cause, content=False)}" if cause is not None else ""
    return f"{type(error).__name__} at {places or 'no frame'}{behind}"
