"""The answer in a box: what LaTeX solutions mark as final. Any string in, no exception, in one pass."""

from __future__ import annotations

import re

_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?=(?P<braces>\{)|(?P<bare>[^\s{}$.,]+))")


def last_boxed(text: str, *, bare: bool = False) -> str | None:
    """The content of the last \\boxed{…} or \\fbox{…}, braces balanced.

    A box that is never closed, as in a response that was cut off, does not count; then the one before it does.

    Args:
        text: a solution.
        bare: whether what follows a box without braces counts too. Only where LaTeX alone is expected: a sentence
            about \\boxed notation would have the answer "notation".

    >>> last_boxed("so \\\\boxed{\\\\frac{1}{2}} it is"), last_boxed("is $\\\\boxed 2$.", bare=True)
    ('\\\\frac{1}{2}', '2')
    """
    boxes = [match for match in _BOX.finditer(text) if bare or match["braces"]]
    closed = _pairs(text) if boxes else {}
    for match in reversed(boxes):
        if match["bare"]:
            return match["bare"]
        if match.end() in closed:
            return text[match.end() + 1 : closed[match.end()]].strip()
    return None


def _pairs(text: str) -> dict[int, int]:
    """Where each opening brace is closed."""
    pairs: dict[int, int] = {}
    waiting: list[int] = []
    for match in re.finditer(r"(?<!\\)[{}]", text):
        if match[0] == "{":
            waiting.append(match.start())
        elif waiting:
            pairs[waiting.pop()] = match.start()
    return pairs
