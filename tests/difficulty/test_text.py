"""The table of words, in which each is computed once; syllables, at the same places as pyphen's hyphens."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyphen import Pyphen

from odar.difficulty.text import MAX_WORD_LENGTH, WordTable, count_syllables, hyphen_positions


@given(st.lists(st.text(max_size=3)), st.integers(1, 4))
def test_values_equal_those_of_the_function(words: list[str], limit: int) -> None:
    table = WordTable(str.upper, limit)
    for word in words:
        assert table[word] == word.upper()
        assert len(table) <= limit


def test_frequent_words_stay_when_the_table_is_full() -> None:
    computed: list[str] = []

    def length(word: str) -> int:
        computed.append(word)
        return len(word)

    table = WordTable(length, 8)
    for number in range(100):
        assert table["the"] == 3
        assert table[f"w{number}"] == len(f"w{number}")
        assert len(table) + len(table._before) <= 8
    assert computed.count("the") == 1


def test_long_words_are_not_kept() -> None:
    table = WordTable(len)
    assert (table["a" * MAX_WORD_LENGTH], table["a" * (MAX_WORD_LENGTH + 1)]) == (
        MAX_WORD_LENGTH,
        MAX_WORD_LENGTH + 1,
    )
    assert list(table) == ["a" * MAX_WORD_LENGTH]


def test_threads_can_use_the_table_concurrently() -> None:
    table, wrong = WordTable(str.upper, 8), []

    def ask(start: int) -> None:
        for i in range(start, start + 2000):
            if table[f"w{i % 50}"] != f"W{i % 50}":
                wrong.append(i)

    threads = [threading.Thread(target=ask, args=(7 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(table) <= 8 + len(threads)


PYPHEN = Pyphen(lang="en_US", cache=False)
PARTS = ["ab", "tion", "hy", "phen", "er", "ing", "graph", "qu", "x", "'", "é", "1", ".", "ß", "日"]


@given(st.text("abcdefghijklmnopqrstuvwxyz'.", max_size=30) | st.lists(st.sampled_from(PARTS)).map("".join))
def test_hyphens_stand_where_pyphen_puts_them(word: str) -> None:
    assert hyphen_positions(word) == PYPHEN.positions(word)


@pytest.mark.parametrize(
    ("word", "count"), [("Photosynthesis,", 5), ("don't", 1), ("1,000", 1), ("--", 0), ("", 0), ("İstanbul", 3)]
)
def test_syllables_of_words_with_punctuation(word: str, count: int) -> None:
    assert count_syllables(word) == count
