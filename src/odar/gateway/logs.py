"""Where log lines go: a queue that costs a request nothing, and a thread that writes it out.

A reader of standard error that is slow, or has stopped, holds up no request: its lines are dropped and counted.
What the lines say is in `log_lines`.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple

from odar.gateway.log_lines import Line, as_json, as_text, record_line, request_line
from odar.gateway.ports import Entry

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
