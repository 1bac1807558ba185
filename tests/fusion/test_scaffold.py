from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.fusion.scaffold import scaffold_mask


def content(*tokens: str) -> list[str]:
    return [token for token, scaffold in zip(tokens, scaffold_mask(tokens), strict=True) if not scaffold]


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["Answer", ":", " 42"], [" 42"]),
        (["An", "sw", "er:", " 42"], [" 42"]),
        (["**", "Answer", ":**", " 42"], [" 42"]),
        (["**Answer**", ":", " 42"], [" 42"]),
        (["Judgment", ": ", "CORRECT", "\n", "Answer", "：", "4"], ["CORRECT", "4"]),
        (["1", ".", " Analyze", ":", " two"], [" two"]),
        (["- ", "one", "\n", "* ", "two"], ["one", "two"]),
        (["Step", " 2", ":", " add"], [" add"]),
        (["## ", "Heading"], ["Heading"]),
        ([" ", "\n\n", "\t"], []),
        (["The", " answer", " is", " 4"], ["The", " answer", " is", " 4"]),
        (["3", ".", "14"], ["3", ".", "14"]),
        (["5", " - ", "3"], ["5", " - ", "3"]),
    ],
)
def test_only_format_is_scaffold(tokens, expected):
    assert content(*tokens) == expected


def test_a_token_that_holds_content_too_is_content():
    assert content("Answer: 42") == ["Answer: 42"]


@given(st.text(max_size=60), st.data())
def test_any_tokenizer_will_do(text, data):
    """The characters called scaffold are the same however the text is cut; here, letter by letter or not at all."""
    by_letter = scaffold_mask(list(text))
    cut = data.draw(st.integers(0, len(text)))
    halves = scaffold_mask([text[:cut], text[cut:]])
    assert halves == [all(by_letter[:cut]), all(by_letter[cut:])]
