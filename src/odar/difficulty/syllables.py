"""Syllables of English words, as textstat counts them without its dictionary: by hyphenation patterns.

The patterns are those of pyphen, which looks up every substring of a word. A walk through a trie gives the same
places in a third of the time, and readability is the slowest feature of a text with many new words.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from odar.difficulty.text import MAX_WORD_LENGTH, WordTable

_has_letter = re.compile(r"\w").search
_QUOTE = re.compile(r"\'(?![tsd]|ve|ll|re)")
_PUNCTUATION = re.compile(r"[^\w\s\']")
_MARGIN = 2
"""Letters that stay together at either end of a word."""
_LEVELS = ""
"""Key of a node's pattern in the trie; other keys are letters."""


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
    trie, padded = _trie(), f".{word}."
    levels = [0] * (len(padded) + 1)
    for start in range(len(padded) - 1):
        node = trie
        for letter in padded[start:]:
            if letter not in node:
                break
            node = node[letter]
            for offset, level in node.get(_LEVELS, ()):
                if level > levels[start + offset]:
                    levels[start + offset] = level
    last = len(word) - _MARGIN
    return [place for place in range(_MARGIN, last + 1) if levels[place + 1] % 2]


@cache
def _trie() -> dict[str, Any]:
    """Return the patterns as a trie of letters; the last node of a pattern has its levels, as (offset, level)."""
    from pyphen import Pyphen

    trie: dict[str, Any] = {}
    for pattern, (offset, levels) in Pyphen(lang="en_US", cache=False).hd.patterns.items():
        node = trie
        for letter in pattern:
            node = node.setdefault(letter, {})
        node[_LEVELS] = tuple((offset + i, int(level)) for i, level in enumerate(levels) if level)
    return trie
