"""Sentences of English prose, counted."""

from __future__ import annotations

import re

_NO_END = re.compile(
    r"mr|mrs|ms|dr|prof|st|sr|jr|vs|etc|e\.g|i\.e|inc|ltd|co|corp|no|vol|fig|al|cf|p\.s|p\.p\.s|u\.s|u\.k|u\.n|a\.m|p\.m"
    r"|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|mt|rev|gen|col|lt|sgt|capt|approx|dept|est|[a-z]|\d{1,2}|"
)
_OPENING = "\"'([*_“‘"
_CLOSING = "\"')]*_”’"
_MARKS = ".!?"


def count_sentences(text: str) -> int:
    """How many sentences a text has.

    A sentence ends in . ! or ?, with any quotes or brackets after it, where white space and something other than a
    small letter follow. The full stop of an abbreviation (`Dr.`, `e.g.`), of an initial (`J. Smith`) or of a list's
    number (`1.`) ends nothing; a text that ends without a mark ends its last sentence there.

    >>> count_sentences("Dr. Smith came. Did he stay? No!")
    3
    """
    words = text.split()
    ends = [place for place, word in enumerate(words) if _ends(word, words[place + 1 : place + 2])]
    after = words[ends[-1] + 1 :] if ends else words
    return len(ends) + any(char.isalnum() for word in after for char in word)


def _ends(word: str, following: list[str]) -> bool:
    core = word.rstrip(_CLOSING)
    stem = core.rstrip(_MARKS)
    if stem == core:
        return False
    if not following:
        return True
    if following[0].lstrip(_OPENING)[:1].islower():
        return False
    return core[len(stem) :] != "." or _NO_END.fullmatch(stem.lstrip(_OPENING).lower()) is None
