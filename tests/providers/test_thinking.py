from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.providers.openai import ThinkingFilter


def answer_of(*pieces):
    thinking = ThinkingFilter()
    return "".join(map(thinking.feed, pieces)) + thinking.flush(), thinking.seen


@pytest.mark.parametrize(
    ("pieces", "answer", "seen"),
    [
        (["<think>hm</think>4"], "4", True),
        (["\n <think>hm</think>\n\n4"], "4", True),
        (["<think></think>4"], "4", True),
        (["4 <think>hm</think>"], "4 <think>hm</think>", False),  # only at the start of an answer
        (["<thinking>4"], "<thinking>4", False),
        (["<thi"], "<thi", False),  # the end came before it could be a tag
        (["  4"], "  4", False),
        ([], "", False),
        (["<think>never closed"], "", True),
        (["<think>a</think>b</think>c"], "b</think>c", True),
        (["<think>a</think><think>b</think>c"], "<think>b</think>c", True),  # one block, at the start
    ],
)
def test_a_leading_thinking_block_is_not_part_of_the_answer(pieces, answer, seen):
    assert answer_of(*pieces) == (answer, seen)


@given(st.lists(st.sampled_from(["<think>", "</think>", " ", "\n", "4", "<", "thi", "nk>"])), st.data())
def test_any_chunking_gives_the_same_answer(pieces, data):
    text = "".join(pieces)
    edges = [0, *sorted(data.draw(st.lists(st.integers(0, len(text))))), len(text)]
    answer, seen = answer_of(*(text[a:b] for a, b in pairwise(edges)))
    assert (answer, seen) == answer_of(text)
    assert seen == text.lstrip().startswith("<think>")


@given(st.text(max_size=40))
def test_an_answer_without_thinking_is_unchanged(text):
    answer, seen = answer_of(text)
    assert seen or answer == text
