"""Syllables: the same places for hyphens as pyphen's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyphen import Pyphen

from odar.difficulty.syllables import count_syllables, hyphen_positions

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
