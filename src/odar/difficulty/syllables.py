"""Syllables of English words, as textstat counts them without its dictionary: by hyphenation patterns.

The patterns are those of pyphen, which looks up every substring of a word. Substrings that begin no pattern are
passed over here, which gives the same places in half the time: readability was the slowest feature of new words.
"""

from __future__ import annotations

import re
from functools import cache

from odar.difficulty.text import MAX_WORD_LENGTH, WordTable

_has_letter = re.compile(r"\w").search
_QUOTE = re.compile(r"\'(?![tsd]|ve|ll|re)")
_PUNCTUATION = re.compile(r"[^\w\s\']")
_MARGIN = 2
"""Letters that stay together at either end of a word."""
Levels = tuple[tuple[int, int], ...]
"""Levels of a pattern, each with the number of letters before it."""


def count_syllables(word: str) -> int:
    """Return the number of syllables of a word with its punctuation; 0 for punctuation alone.

    >>> count_syllables("Photosynthesis,"), count_syllables("through"), count_syllables("--")
    (5, 1, 0)
    """
    if not _has_letter(word):
        return 0
    bare = _PUNCTUATION.sub("", _QUOTE.sub("", word[:MAX_WORD_LENGTH])).lower()
    # hyphenation patterns have no digits: a number is one syllable
    return 1 if bare.isdecimal() else len(hyphen_positions(bare)) + 1


SYLLABLES = WordTable(count_syllables)
"""Cache of `count_syllables`."""


def hyphen_positions(word: str) -> list[int]:
    """Return where a lower-case word can be hyphenated, by Liang's algorithm.

    Every pattern in the word gives levels to the places between its letters. The highest level of a place counts;
    the word can be hyphenated where it is odd.

    >>> hyphen_positions("hyphenation")
    [2, 6]
    """
    patterns, padded = _patterns(), f".{word}."
    levels = [0] * (len(padded) + 1)
    for start in range(len(padded) - 1):
        for end in range(start + 1, len(padded) + 1):
            piece = padded[start:end]
            if piece not in patterns:
                break
            for offset, level in patterns[piece]:
                if level > levels[start + offset]:
                    levels[start + offset] = level
    return [place for place in range(_MARGIN, len(word) - _MARGIN + 1) if levels[place + 1] % 2]


@cache
def _patterns() -> dict[str, Levels]:
    """Return the levels of each pattern, and none for every beginning of a pattern."""
    from pyphen import Pyphen

    patterns: dict[str, Levels] = {}
    shared: dict[Levels, Levels] = {}  # few patterns differ in their levels
    for pattern, (first, levels) in Pyphen(lang="en_US", cache=False).hd.patterns.items():
        for end in range(1, len(pattern)):
            patterns.setdefault(pattern[:end], ())
        own = tuple((first + i, int(level)) for i, level in enumerate(levels) if level)
        patterns[pattern] = shared.setdefault(own, own)
    return patterns
