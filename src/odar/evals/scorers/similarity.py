"""Similarity: edit distances, of texts and of orders."""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Sequence

_MOST = 5


def levenshtein(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """The fewest insertions, deletions and replacements that turn one sequence into the other.

    >>> levenshtein("kitten", "sitting")
    3
    """
    if len(first) < len(second):
        first, second = second, first
    above = list(range(len(second) + 1))
    for i, a in enumerate(first, start=1):
        row = [i]
        for j, b in enumerate(second, start=1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a != b)))
        above = row
    return above[-1]


def similarity(gold: Sequence[Hashable], given: Sequence[Hashable]) -> float:
    """1 for equal, 0 for nothing in common: one minus the edit distance over the longer length.

    >>> similarity([1, 2, 3, 4], [1, 3, 2, 4])
    0.5
    """
    longest = max(len(gold), len(given))
    return 1.0 - levenshtein(gold, given) / longest if longest else 1.0


def order_similarity(gold: str, answer: str) -> float:
    """How much of the order of a text's sentences was found (LiveBench's plot unscrambling).

    Every gold sentence is matched with the nearest given one, so that small changes of wording do not matter; the
    score is one minus the edit distance of the two orders over the number of gold sentences, never below 0.

    >>> order_similarity("He came. He saw. He won.", "He came. He won. He saw.")
    0.33333333333333337
    """
    wanted, given = _sentences(gold), _sentences(answer)
    if not wanted or not given:
        return float(wanted == given)
    given = given[: _MOST * len(wanted)]  # the rest of an endless answer would only take time
    places = [given.index(difflib.get_close_matches(sentence, given, n=1, cutoff=0.0)[0]) for sentence in wanted]
    return max(0.0, 1.0 - levenshtein(range(len(wanted)), places) / len(wanted))


def _sentences(text: str) -> list[str]:
    return [part.strip() for part in text.split(".") if part.strip()]
