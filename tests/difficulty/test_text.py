"""Syllables, and the cache of what is computed for each word."""

from __future__ import annotations

import pytest

from odar.difficulty.text import MAX_WORD_LENGTH, _english, cached_by_word, count_syllables


def test_results_are_kept_except_those_of_long_words() -> None:
    computed: list[str] = []

    @cached_by_word
    def length(word: str) -> int:
        computed.append(word)
        return len(word)

    long = "a" * (MAX_WORD_LENGTH + 1)
    assert [length(word) for word in ("the", long, "the", long)] == [3, len(long), 3, len(long)]
    assert computed == ["the", long, long]


def test_no_word_is_kept_by_the_hyphenator() -> None:
    count_syllables("supercalifragilistic")
    assert not _english().hd.cache


@pytest.mark.parametrize(
    ("word", "count"), [("Photosynthesis,", 5), ("don't", 1), ("1,000", 1), ("--", 0), ("", 0), ("İstanbul", 3)]
)
def test_syllables_of_words_with_punctuation(word: str, count: int) -> None:
    assert count_syllables(word) == count
