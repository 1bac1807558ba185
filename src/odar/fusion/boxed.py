"""The answer in a box: what LaTeX solutions mark as final."""

from __future__ import annotations

import re

_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?=(?P<braces>\{)|(?P<bare>[^\s{}$.,]+))")


def last_boxed(text: str) -> str | None:
    """The content of the last \\boxed{…} or \\fbox{…}, braces balanced, or what follows one without braces.

    A box that is never closed, as in a response that was cut off, does not count; then the one before it does.

    >>> last_boxed("so \\\\boxed{\\\\frac{1}{2}} it is"), last_boxed("is $\\\\boxed 2$."), last_boxed("none")
    ('\\\\frac{1}{2}', '2', None)
    """
    closed = _pairs(text)
    for match in reversed(list(_BOX.finditer(text))):
        if match["bare"]:
            return match["bare"]
        if match.end() in closed:
            return text[match.end() + 1 : closed[match.end()]].strip()
    return None


def _pairs(text: str) -> dict[int, int]:
    """Where each opening brace is closed; one pass, whatever the text."""
    pairs: dict[int, int] = {}
    waiting: list[int] = []
    for match in re.finditer(r"(?<!\\)[{}]", text):
        if match[0] == "{":
            waiting.append(match.start())
        elif waiting:
            pairs[waiting.pop()] = match.start()
    return pairs
