"""Shows an answer to a person while it is being generated."""

from __future__ import annotations

import sys
from typing import TextIO

from odar.cli.harmless import harmless
from odar.policy.answers import find_answer

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


class AnswerStream:
    """Writes text as it comes, dimmed, because most of it is the way to the answer and not the answer."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._text = ""

    def feed(self, text: str) -> None:
        """Show another piece."""
        if not self._text:
            text = text.lstrip()
        self._text += text
        self._out.write(f"{_DIM}{harmless(text)}{_PLAIN}" if text else "")
        self._out.flush()

    def finish(self, answer: str) -> bool:
        """End the stream; True if the answer as such has been seen and need not be printed again."""
        if not self._text:
            return False
        self._out.write("\n")
        self._out.flush()
        return find_answer(self._text) is None and self._text.strip() == answer
