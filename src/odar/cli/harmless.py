"""What a model wrote, made fit for a terminal: text, and no commands to it."""

from __future__ import annotations

_SHOWN_AS = dict.fromkeys((*range(32), *range(127, 160)), "�")
for _kept in "\n\t":
    del _SHOWN_AS[ord(_kept)]
_SHOWN_AS[ord("\r")] = ""  # half of a line end, or else meant to write over what stands there


def harmless(text: str) -> str:
    r"""The text without control characters, by which a terminal is told to clear its screen, change its title or
    fill the clipboard. Line ends and tabs stay. Pieces of a text may be given one by one.

    >>> harmless("4\x1b]0;title\x07\r\n\tfür 漢字")
    '4�]0;title�\n\tfür 漢字'
    """
    return text.translate(_SHOWN_AS)
