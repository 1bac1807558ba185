"""Log lines of questions and failures, as text or JSON, and the thread that writes them.

No line contains a prompt, an answer or a key. If standard error is read too slowly, or not at all, no request is
delayed: lines are dropped and counted.
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
from typing import Any

from odar import errors
from odar.gateway.records import Entry
from odar.observer import outgoing_headers
from odar.providers.response import quotes_prompt

Line = Mapping[str, Any]
"""Time, level, logger, message and further values by name; None is unknown."""
MAX_QUEUED_LINES = 10_000
"""Lines in the queue; further ones are dropped and counted."""
CURRENT_REQUEST: ContextVar[Mapping[str, str] | None] = ContextVar("odar_request", default=None)
"""`request_id` and `trace_id` of the request that is being answered; all its lines contain them."""
_POLL_S = 0.1
_CLOSE_TIMEOUT_S = 2.0
_HEAD_FIELDS = ("time", "level", "logger", "message")
_UNQUOTED_VALUE = re.compile(r"[^\s\"'=\\]+")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_SAFE_ERRORS = {name for name, kind in vars(errors).items() if isinstance(kind, type)} | {"ApiError"}
"""Errors whose messages are written in this package and contain neither keys nor prompts."""


def request_id(sent: bytes | None, made: str) -> str:
    """Return the client's id of its request if it can be logged, else `made`.

    >>> request_id(b"req-1", "made"), request_id(b"a b\\n", "made"), request_id(None, "made")
    ('req-1', 'made', 'made')
    """
    return sent.decode() if sent and _REQUEST_ID.fullmatch(sent) else made


def request_line(entry: Entry) -> Line:
    """Return the line of one question."""
    line: dict[str, Any] = {
        "time": time.time(),
        "level": "info" if entry.status < 500 else "error",
        "logger": "odar.request",
        "message": "request",
        "request_id": entry.request_id,
        "trace_id": entry.trace_id,
        "key_id": entry.key_id,
        "endpoint": entry.endpoint,
        "model": entry.model or None,
        "path": entry.decision.path.value if entry.decision else None,
        "status": entry.status,
        "seconds": round(entry.seconds, 4),
        "stream": entry.stream,
        "calls": entry.spend.calls,
        "cost_usd": entry.spend.cost_usd,
    }
    if entry.trace and entry.trace.degradations:
        line["degraded"] = True
    if entry.error is not None:
        # In full only if ODAR wrote it: a client's error may quote the client, an upstream's the prompt.
        texts = [message.text for message in entry.query.messages if message.text] if entry.query else []
        kind = entry.error.partition(":")[0]
        ours = entry.status >= 500 and kind in _SAFE_ERRORS and not quotes_prompt(entry.error, texts)
        line["error"] = entry.error if ours else kind
    if headers := outgoing_headers():
        line["traceparent"] = headers.get("traceparent")
    return line


def record_line(record: logging.LogRecord) -> Line:
    """Return a line for a record of the logging module."""
    line: dict[str, Any] = {
        "time": record.created,
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage().partition("\n")[0],  # the text of a failure follows, and may quote a user
        **(CURRENT_REQUEST.get() or {}),
    }
    if record.exc_info and record.exc_info[1] is not None:
        line["exception"] = _describe_exception(record.exc_info[1])
    return line


def _describe_exception(error: BaseException) -> str:
    """Type and frames of an exception, innermost first, without its message, which may quote a user."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    places = " < ".join(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames)
    cause = error.__cause__ or error.__context__
    behind = f"; after {_describe_exception(cause)}" if cause is not None else ""
    return f"{type(error).__name__} at {places or 'no frame'}{behind}"


def as_json(line: Line) -> str:
    """Return the line as a JSON object."""
    return json.dumps({**line, "time": _timestamp(line["time"])}, ensure_ascii=False, default=str) + "\n"


def as_text(line: Line) -> str:
    """`time LEVEL logger message key=value …`, without unknown values; ambiguous values are quoted.

    >>> as_text({"time": 0, "level": "info", "logger": "odar", "message": "ready", "on": "a b", "key": None})
    '1970-01-01T00:00:00.000Z INFO odar ready on="a b"\\n'
    """
    known = ((key, value) for key, value in line.items() if value is not None and key not in _HEAD_FIELDS)
    rest = "".join(f" {key}={_format_value(value)}" for key, value in known)
    said = errors.one_line(line["message"])
    return f"{_timestamp(line['time'])} {line['level'].upper()} {line['logger']} {said}{rest}\n"


def _format_value(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if _UNQUOTED_VALUE.fullmatch(text) and text.isprintable() else json.dumps(text, ensure_ascii=True)


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def descriptor_writer(number: int) -> Callable[[str], None]:
    """Write to a descriptor without Python's buffers: a thread blocked in one would delay the exit."""

    def write(text: str) -> None:
        data = text.encode("utf-8", "replace")
        while data:
            data = data[os.write(number, data) :]

    return write


class Logs(logging.Handler):
    """A log handler that writes lines as text or JSON from a thread of its own.

    Args:
        write: takes several lines at a time; may be slow.
        form: text or json.
        requests: whether each question gets a line.
    """

    def __init__(self, write: Callable[[str], object], form: str = "text", *, requests: bool = True) -> None:
        super().__init__(logging.WARNING)
        self._write = write
        self._render = as_json if form == "json" else as_text
        self._requests = requests
        self._waiting: deque[Line] = deque()
        self._dropped = 0
        self._dropped_lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="odar-logs", daemon=True)
        self._thread.start()

    def install(self) -> None:
        """Handle all warnings of this process: those of ODAR, of the server and of Python."""
        logging.basicConfig(level=logging.WARNING, handlers=[self], force=True)
        logging.captureWarnings(True)

    def info(self, message: str, **figures: Any) -> None:
        """Write an informational line."""
        self._put({"time": time.time(), "level": "info", "logger": "odar", "message": message, **figures})

    def request(self, entry: Entry) -> None:
        """Write the line of one question; takes microseconds."""
        if self._requests:
            self._put(request_line(entry))

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line for a record of the logging module."""
        self._put(record_line(record))

    def close(self) -> None:
        """Write the lines in the queue, for two seconds at most."""
        self._stop.set()
        self._thread.join(_CLOSE_TIMEOUT_S)
        super().close()

    def _put(self, line: Line) -> None:
        if len(self._waiting) < MAX_QUEUED_LINES:
            self._waiting.append(line)
        else:
            self._drop(1)

    def _drop(self, lines: int) -> None:
        with self._dropped_lock:
            self._dropped += lines

    def _run(self) -> None:
        # Polls instead of being woken: waking the thread would cost each request more than its line does.
        while not self._stop.wait(_POLL_S):
            self._write_waiting()
        self._write_waiting()

    def _write_waiting(self) -> None:
        with self._dropped_lock:
            lost, self._dropped = self._dropped, 0
        lines = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if lost:
            message = "lines were dropped: standard error was not read in time"
            head = {"time": time.time(), "level": "warning", "logger": "odar", "message": message}
            lines.append({**head, "lines": lost})
        if lines:
            try:
                self._write("".join(map(self._render, lines)))
            except (OSError, ValueError):
                self._drop(len(lines) - bool(lost) + lost)  # the reader has left
