"""Log lines for requests and errors, as text or JSON, and the thread that writes them.

No line contains a prompt, an answer or a key. If standard error is not read in time, lines are dropped and counted;
requests are never delayed.
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
from odar.observer import outgoing_headers
from odar.traces.record import Record
from odar.types import Trace

Line = Mapping[str, Any]
"""Time, level, logger, message and further values by name; None if unknown."""
MAX_QUEUED_LINES = 10_000
"""Largest number of lines in the queue; further ones are dropped and counted."""
CURRENT_REQUEST: ContextVar[Mapping[str, str] | None] = ContextVar("odar_request", default=None)
"""`request_id` and `trace_id` of the current request, for its log lines."""
_POLL_S = 0.1
_PIPE_BUF = 4096
_CLOSE_TIMEOUT_S = 2.0
_HEAD_FIELDS = ("time", "level", "logger", "message")
_UNQUOTED_VALUE = re.compile(r"[^\s\"'=\\]+")


def make_line(message: str, level: str = "info", logger: str = "odar", **fields: Any) -> dict[str, Any]:
    return {"time": time.time(), "level": level, "logger": logger, "message": message, **fields}


def request_line(record: Record) -> Line:
    line = make_line(
        "request",
        "info" if record.http_status < 500 else "error",
        "odar.request",
        request_id=record.request_id,
        trace_id=record.trace.id,
        key_id=record.key_id or None,
        endpoint=record.endpoint,
        model=record.model or None,
        path=record.path,
        status=record.http_status,
        seconds=round(record.seconds, 4),
        stream=record.stream,
        calls=record.trace.spend.calls,
        cost_usd=record.trace.spend.cost_usd,
    )
    if isinstance(record.trace, Trace) and record.trace.degradations:
        line["degraded"] = True
    if record.error is not None:
        line["error"] = record.error_summary  # messages may quote the client or the prompt
    if headers := outgoing_headers():
        line["traceparent"] = headers.get("traceparent")
    return line


def log_record_line(record: logging.LogRecord) -> Line:
    message = record.getMessage().partition("\n")[0]  # further lines may quote a user
    line = make_line(message, record.levelname.lower(), record.name, **(CURRENT_REQUEST.get() or {}))
    if record.exc_info and record.exc_info[1] is not None:
        line["exception"] = _describe_exception(record.exc_info[1])
    return line


def _describe_exception(error: BaseException) -> str:
    """Type and frames of an exception, innermost first, without its message, which may quote a user."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    places = " < ".join(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames)
    cause = error.__cause__ or error.__context__
    after = f"; after {_describe_exception(cause)}" if cause is not None else ""
    return f"{type(error).__name__} at {places or 'no frame'}{after}"


def as_json(line: Line) -> str:
    return json.dumps({**line, "time": _timestamp(line["time"])}, ensure_ascii=False, default=str) + "\n"


def as_text(line: Line) -> str:
    """The line as `time LEVEL logger message key=value …`, without unknown values.

    >>> as_text({"time": 0, "level": "info", "logger": "odar", "message": "ready", "on": "a b", "key": None})
    '1970-01-01T00:00:00.000Z INFO odar ready on="a b"\\n'
    """
    fields = ((key, value) for key, value in line.items() if value is not None and key not in _HEAD_FIELDS)
    rest = "".join(f" {key}={_format_value(value)}" for key, value in fields)
    message = errors.one_line(line["message"])
    return f"{_timestamp(line['time'])} {line['level'].upper()} {line['logger']} {message}{rest}\n"


def _format_value(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if _UNQUOTED_VALUE.fullmatch(text) and text.isprintable() else json.dumps(text, ensure_ascii=True)


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def descriptor_writer(descriptor: int, *, shared: bool = False) -> Callable[[str], None]:
    """A function that writes without Python's buffers: a thread blocked in one would delay the exit.

    If other processes write to it too (`shared`), each write is small enough for a pipe to keep its lines whole.
    """

    def write(text: str) -> None:
        data = text.encode("utf-8", "replace")
        while data:
            end = (data.rfind(b"\n", 0, _PIPE_BUF) + 1 if shared else 0) or len(data)
            data = data[os.write(descriptor, data[:end]) :]

    return write


class Logs(logging.Handler):
    """A log handler that writes lines as text or JSON in a thread of its own.

    Args:
        write: receives several lines at a time; may be slow.
        format: text or json.
        requests: whether each request gets a line.
    """

    def __init__(self, write: Callable[[str], object], format: str = "text", *, requests: bool = True) -> None:
        super().__init__(logging.WARNING)
        self._write = write
        self._render = as_json if format == "json" else as_text
        self._requests = requests
        self._waiting: deque[Line] = deque()
        self._dropped = 0
        self._dropped_lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="odar-logs", daemon=True)
        self._thread.start()

    def install(self) -> None:
        """Handle all warnings of this process."""
        logging.basicConfig(level=logging.WARNING, handlers=[self], force=True)
        logging.captureWarnings(True)

    def info(self, message: str, **fields: Any) -> None:
        self._put(make_line(message, **fields))

    def request(self, record: Record) -> None:
        if self._requests:
            self._put(request_line(record))

    def emit(self, record: logging.LogRecord) -> None:
        self._put(log_record_line(record))

    def close(self) -> None:
        """Write the queued lines, for at most two seconds."""
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
            lines.append(make_line(message, "warning", lines=lost))
        if lines:
            try:
                self._write("".join(map(self._render, lines)))
            except (OSError, ValueError):
                self._drop(len(lines) - bool(lost) + lost)  # the reader has closed the pipe
