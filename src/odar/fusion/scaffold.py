"""Which tokens are format rather than content (SPEC 5.4), by character spans so that any tokenizer will do."""

from __future__ import annotations

import re
from collections.abc import Sequence

_SCAFFOLD = re.compile(
    r"""
      (?:\*\*|__)?\b(?:final\ )?(?:answer|judg(?:e)?ment)\b(?:\*\*|__)?\s*[:：](?:\*\*|__)?  # Answer:
    | ^[ \t]*\#{1,6}[ \t]  # markdown heading
    | ^[ \t]*(?:\d{1,2}[.)]|[-*+•])[ \t]  # 1.  2)  -  *
    | (?:\*\*|__)?\b(?:step\ \d{1,2}|restate|validate|judge|correct|analyze|strategize|execute|verify)
        (?:\*\*|__)?[:：](?:\*\*|__)?  # Step 2:  **Verify:**
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)


def scaffold_mask(texts: Sequence[str]) -> list[bool]:
    """True for each token that is white space, or whose other characters all lie in a format marker.

    >>> scaffold_mask(["An", "swer", ":", " Paris", "\\n"])
    [True, True, True, False, True]
    """
    text = "".join(texts)
    matches = list(_SCAFFOLD.finditer(text))
    if not matches:
        return [not token.strip() for token in texts]
    inside = bytearray(len(text))
    for match in matches:
        inside[match.start() : match.end()] = b"\x01" * (match.end() - match.start())
    mask: list[bool] = []
    start = 0
    for token in texts:
        mask.append(all(inside[start + i] or character.isspace() for i, character in enumerate(token)))
        start += len(token)
    return mask
