"""The answer in a box: what LaTeX solutions mark as final."""

from __future__ import annotations

import re

_BOX = re.compile(r"\\f?boxed(?=[\s{\\\d])|\\fbox(?=[\s{])")


def last_boxed(text: str) -> str | None:
    """The content of the last \\boxed{…} or \\fbox{…}, braces balanced, or what follows one without braces.

    A box that is never closed, as in a response that was cut off, does not count; then the one before it does.

    >>> last_boxed("so \\\\boxed{\\\\frac{1}{2}} it is"), last_boxed("is $\\\\boxed 2$."), last_boxed("none")
    ('\\\\frac{1}{2}', '2', None)
    """
    for match in reversed(list(_BOX.finditer(text))):
        rest = text[match.end() :].lstrip()
        found = _braced(rest) if rest.startswith("{") else re.match(r"[^$\s.,]+", rest)
        if found is not None:
            return (found if isinstance(found, str) else found[0]).strip()
    return None


def _braced(text: str) -> str | None:
    depth = 0
    for match in re.finditer(r"(?<!\\)[{}]", text):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return text[1 : match.start()]
    return None
