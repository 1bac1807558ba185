"""Yes or no."""

from __future__ import annotations

import re

_WORD = re.compile(r"\b(yes|no|true|false)\b", re.IGNORECASE)
_TRUE = {"yes", "true"}


def verdict(gold: bool, answer: str) -> float:
    """1 where the answer says what the gold does; `true` is yes and `false` is no.

    A verdict at the beginning counts (`No, Albany is smaller`); otherwise a text must say the same throughout:
    `yes and no` is neither.

    >>> verdict(True, "Yes."), verdict(False, "**False**, it is not"), verdict(True, "maybe")
    (1.0, 1.0, 0.0)
    """
    text = answer.strip(" \n\t*_`\"'(")
    if match := _WORD.match(text):
        rest = text[match.end() :].lstrip("*_`\"' ")
        if not rest or rest[0] in ".,;:!\n)-–—":
            return float((match[1].lower() in _TRUE) is gold)
    said = {word.lower() in _TRUE for word in _WORD.findall(text)}
    return float(said == {gold})
