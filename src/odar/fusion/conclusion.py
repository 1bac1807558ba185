"""The number that prose comes to: for models that ignore the format they were asked for. Pure, total, linear."""

from __future__ import annotations

import re

_SENTENCE_END = re.compile(r"[.!?](?=\s)|\n")
_NUMBER = re.compile(r"(?<![\w.])-?[$€£]?\d[\d,]*(?:\.\d+)?%?(?![\w])")
_FEWEST_WORDS = 4
"""Shorter texts are answers, not prose."""
_TAIL = 2_000
"""Characters at the end in which the last sentence is looked for."""


def conclusion(text: str) -> str | None:
    """The last number of the last sentence of prose; None where there is none, or the text is no prose.

    >>> conclusion("She has 16 - 7 = 9 eggs left. So she makes 9 * $2 = $18 every day.")
    '$18'
    >>> conclusion("42 km") is None
    True
    """
    if len(text.split(maxsplit=_FEWEST_WORDS)) < _FEWEST_WORDS:
        return None
    tail = text[-_TAIL:].strip()
    starts = [match.end() for match in _SENTENCE_END.finditer(tail)]
    numbers = _NUMBER.findall(tail[starts[-1] if starts else 0 :])
    return numbers[-1].rstrip(",") if numbers else None
