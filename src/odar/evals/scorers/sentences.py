"""Sentences of English prose, counted."""

from __future__ import annotations

import re

_NO_END = re.compile(
    r"mr|mrs|ms|dr|prof|st|sr|jr|vs|etc|e\.g|i\.e|inc|ltd|co|corp|no|vol|fig|al|cf|p\.s|p\.p\.s|u\.s|u\.k|u\.n|a\.m|p\.m"
    r"|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|mt|rev|gen|col|lt|sgt|capt|approx|dept|est|[a-z]|\d{1,2}|"
)
_END = re.compile(r"(?P<word>[^\s]*?)(?P<mark>[.!?]+)[\"')\]*_”’]*(?=\s+(?P<next>\S+)|\s*$)")
_OPENING = "\"'([*_“‘"


def count_sentences(text: str) -> int:
    """How many sentences a text has.

    A sentence ends in . ! or ?, with any quotes or brackets after it, where white space and something other than a
    small letter follow. The full stop of an abbreviation (`Dr.`, `e.g.`), of an initial (`J. Smith`) or of a list's
    number (`1.`) ends nothing; a text that ends without a mark ends its last sentence there.

    >>> count_sentences("Dr. Smith came. Did he stay? No!")
    3
    """
    count, reached = 0, 0
    for match in _END.finditer(text):
        if _ends(match):
            count, reached = count + 1, match.end()
    return count + bool(re.search(r"\w", text[reached:]))


def _ends(match: re.Match[str]) -> bool:
    following = match["next"]
    if following is None:
        return True
    first = following.lstrip(_OPENING)[:1]
    if first.islower():
        return False
    if match["mark"] != ".":
        return True
    word = match["word"].lstrip(_OPENING).lower()
    return _NO_END.fullmatch(word) is None
