"""Server-sent events, read as the bytes come in."""

from __future__ import annotations

import re
from typing import NamedTuple

_LINE_END = re.compile(rb"\r\n|\n|\r")


class Event(NamedTuple):
    """One event: its name ("message" where the server gave none) and its data."""

    name: str
    data: str


class SseReader:
    r"""Turns chunks of bytes, cut anywhere, into events.

    `done` becomes True at OpenAI's closing `[DONE]`, which is not an event, and neither is what follows it.

    >>> reader = SseReader()
    >>> reader.feed(b": a comment\r\ndata: {\"a\":\r\nda")
    []
    >>> reader.feed(b"ta: 1}\r\n\r\ndata: [DONE]\n\n")
    [Event(name='message', data='{"a":\n1}')]
    >>> reader.done
    True
    """

    def __init__(self) -> None:
        self.done = False
        self._partial = bytearray()
        self._after_cr = False
        self._first = True
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that this chunk completes."""
        if not chunk:
            return []
        if self._after_cr:  # the CR ended a line already; its LF may only come now
            chunk = chunk.removeprefix(b"\n")
        self._after_cr = chunk.endswith(b"\r")
        head, *tail = (
            _LINE_END.split(chunk) if b"\r" in chunk else chunk.split(b"\n")
        )  # the usual case, ten times as fast
        self._partial += head
        if not tail:
            return []
        lines = [bytes(self._partial), *tail[:-1]]
        self._partial = bytearray(tail[-1])
        return [event for line in lines if (event := self._take(line)) is not None]

    def _take(self, line: bytes) -> Event | None:
        # Whole lines only reach this point, so no character is ever cut in two.
        text = line.decode("utf-8", errors="replace")
        if self._first:  # a byte order mark is allowed there, and means nothing
            self._first, text = False, text.removeprefix("\ufeff")
        if not text:
            return self._dispatch()
        field, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        return None

    def _dispatch(self) -> Event | None:
        name, data = self._name or "message", "\n".join(self._data)
        empty = not self._data
        self._name, self._data = "", []
        self.done = self.done or data == "[DONE]"
        return None if empty or self.done else Event(name, data)
