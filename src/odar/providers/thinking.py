"""Thinking that a server leaves in the text of an answer: kept out of it, also while it streams."""

from __future__ import annotations


class Thinking:
    """Keeps a `<think>…</think>` block at the start of an answer out of its text, however it is cut.

    >>> thinking = Thinking()
    >>> [thinking.feed(piece) for piece in ("<thi", "nk>2 and 2</thi", "nk>\\n", "\\n4", " is it")]
    ['', '', '', '4', ' is it']
    """

    _OPEN, _CLOSE = "<think>", "</think>"

    def __init__(self) -> None:
        self.seen = False
        self._inside = False
        self._answering = False
        self._held = ""

    def feed(self, text: str) -> str:
        """The part of this text that belongs to the answer, as far as is known by now."""
        if self._answering:
            return text
        self._held += text
        if self._inside:
            _, closed, rest = self._held.partition(self._CLOSE)
            if not closed:
                self._held = self._held[1 - len(self._CLOSE) :]  # the closing tag may be half here
                return ""
            self._inside, self._held = False, rest
        start = self._held.lstrip()
        if not self.seen and start.startswith(self._OPEN):
            self.seen = self._inside = True
            self._held = start.removeprefix(self._OPEN)
            return self.feed("")
        if not start or (not self.seen and self._OPEN.startswith(start)):
            return ""
        self._answering = True
        return start if self.seen else self._held

    def end(self) -> str:
        """What was held back at the end of the text and turned out to be answer."""
        held = "" if self._answering or self.seen else self._held
        self._answering = True
        return held
