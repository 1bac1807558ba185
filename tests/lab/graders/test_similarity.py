from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.lab.graders.text import levenshtein, order_similarity, similarity


def test_distances_by_hand():
    assert levenshtein("kitten", "sitting") == 3
    assert levenshtein("", "abc") == 3
    assert levenshtein([1, 2, 3], [1, 3]) == 1
    assert similarity("abcd", "abcx") == 0.75
    assert similarity("", "") == 1.0


short = st.text(alphabet="ab", max_size=8)


@given(short, short, short)
def test_levenshtein_is_a_metric(a, b, c):
    assert levenshtein(a, b) == levenshtein(b, a)
    assert (levenshtein(a, b) == 0) == (a == b)
    assert levenshtein(a, c) <= levenshtein(a, b) + levenshtein(b, c)
    assert 0.0 <= similarity(a, b) <= 1.0


def test_order_similarity_by_hand():
    plot = "He came. He saw. He won."
    assert order_similarity(plot, plot) == 1.0
    assert order_similarity(plot, "He came! indeed. He saw. He won.") == 1.0  # small changes of wording
    assert order_similarity(plot, "He won. He saw. He came.") == pytest.approx(1 / 3)
    assert order_similarity(plot, "") == 0.0
