"""Log lines: what they say of a question or a failure, as text or JSON, and the queue and thread that write them.

No line holds a prompt, an answer or a key, unless `store.content = true`. A reader of standard error that is slow,
or has stopped, delays no request: its lines are dropped and counted.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, NamedTuple

from odar import errors
from odar.gateway.records import Entry
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


MOST_LINES = 10_000
"""Lines that may wait for a reader; beyond it new ones are dropped, and counted."""
_PAUSE_S = 0.1
_CLOSE_S = 2.0
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")


class Ids(NamedTuple):
    """What the lines of one request have in common."""

    request_id: str
    trace_id: str


CURRENT: ContextVar[Ids | None] = ContextVar("odar_request", default=None)
"""The request that is being answered."""


def request_id(sent: bytes | None, made: str) -> str:
    """The client's own name for its request, if it is one that can be logged; else ours.

    >>> request_id(b"req-1", "made"), request_id(b"a b\\n", "made"), request_id(None, "made")
    ('req-1', 'made', 'made')
    """
    return sent.decode() if sent and _REQUEST_ID.fullmatch(sent) else made


def to_descriptor(number: int) -> Callable[[str], None]:
    """Writes there without Python's buffers: a thread stuck inside one would hold up the end of the process."""

    def write(text: str) -> None:
        data = text.encode("utf-8", "replace")
        while data:
            data = data[os.write(number, data) :]

    return write


class Logs(logging.Handler):
    """Where lines go, in one of two forms.

    Args:
        write: takes several lines at a time; may be slow.
        form: text or json.
        requests: whether each question gets a line.
        content: whether messages that quote somebody may be shown.
    """

    def __init__(
        self, write: Callable[[str], object], form: str = "text", *, requests: bool = True, content: bool = False
    ) -> None:
        super().__init__(logging.WARNING)
        self._write = write
        self._render = as_json if form == "json" else as_text
        self._requests = requests
        self._content = content
        self._waiting: deque[Line] = deque()
        self._dropped = 0
        self._counting = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="odar-logs", daemon=True)
        self._thread.start()

    def install(self) -> None:
        """Take every warning of this process: ours, the server's, Python's own."""
        root = logging.getLogger()
        root.handlers[:] = [self]
        root.setLevel(logging.WARNING)
        logging.captureWarnings(True)

    def say(self, message: str, **figures: Any) -> None:
        """A line of our own."""
        self._put({"level": "info", "logger": "odar", "message": message, **figures})

    def request(self, entry: Entry) -> None:
        """The line of one question; microseconds."""
        if not self._requests:
            return
        self._put(request_line(entry, content=self._content))

    def emit(self, record: logging.LogRecord) -> None:
        """A line of the logging module's."""
        ids = CURRENT.get()
        self._put(record_line(record, ids._asdict() if ids else {}, content=self._content))

    def close(self) -> None:
        """Write what waits, for a moment at most."""
        self._stop.set()
        self._thread.join(_CLOSE_S)
        super().close()

    def _put(self, line: Line) -> None:
        if len(self._waiting) >= MOST_LINES:
            self._drop(1)
            return
        self._waiting.append({"time": time.time(), **line})

    def _drop(self, lines: int) -> None:
        with self._counting:
            self._dropped += lines

    # ── in the thread ───────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        # Looks now and then instead of being woken: waking it would cost each request more than its line does.
        while not self._stop.wait(_PAUSE_S):
            self._empty()
        self._empty()

    def _empty(self) -> None:
        lines = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if self._dropped:
            with self._counting:
                lost, self._dropped = self._dropped, 0
            message = "lines were dropped: nobody read them in time"
            lines.append(
                {"time": time.time(), "level": "warning", "logger": "odar", "message": message, "lines": lost}
            )
        if lines:
            try:
                self._write("".join(map(self._render, lines)))
            except (OSError, ValueError):
                self._drop(len(lines))  # the reader has left
