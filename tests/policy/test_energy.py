from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.policy.energy import Alignment, free_energy, measure_energy, scaffold_mask, varentropy
from odar.types import Token

LAMBDA = 0.1
logprob = st.floats(-20, 0, allow_nan=False)
words = st.text("abcdefgh", min_size=1, max_size=6)


def tokens_of(pairs):
    return tuple(Token(text, value) for text, value in pairs)


@pytest.mark.parametrize(
    ("energy", "variance", "expected"),
    [
        (0.18, 0.025, 0.1825),
        (0.09, 0.012, 0.0912),
        (0.06, 0.008, 0.0608),
        (0.45, 0.120, 0.4620),
        (0.08, 0.015, 0.0815),
        (0.21, 0.032, 0.2132),
    ],
)
def test_worked_example_of_spec_5_8(energy, variance, expected):
    """SPEC 5.8."""
    assert round(free_energy(energy, variance, LAMBDA, None).free_energy, 4) == expected


def test_varentropy_is_the_population_variance():
    assert varentropy([-1.0, -2.0, -6.0]) == pytest.approx(np.var([-1, -2, -6]))
    assert varentropy([-5.0]) == 0.0
    assert varentropy([]) == 0.0


def test_measure_combines_energy_varentropy_and_alignment():
    measured = measure_energy(tokens_of([("abcd", -1.0), ("efgh", -3.0)]), LAMBDA, Alignment(0.5, 0.2))
    assert measured.energy == pytest.approx(4.0 / 8)
    assert measured.varentropy == pytest.approx(1.0)
    assert measured.free_energy == pytest.approx(0.5 + 0.1 * 1.0)
    assert measured.aligned == pytest.approx((0.6 - 0.5) / 0.2)


def test_control_tokens_are_ignored():
    plain = tokens_of([("abcd", -1.0), ("efgh", -3.0)])
    ended = (*plain, Token("<|im_end|>", -9.0, control=True))
    assert measure_energy(ended, LAMBDA, None) == measure_energy(plain, LAMBDA, None)


def test_scaffolding_counts_for_energy_but_not_for_varentropy():
    measured = measure_energy(
        tokens_of([("Answer", -0.1), (":", -0.1), (" yes", -3.0), ("\n", -4.0)]), LAMBDA, None
    )
    assert measured.varentropy == 0.0
    assert measured.energy == pytest.approx(7.2 / 12)


def test_tokens_without_a_logprob_are_left_out_with_their_characters():
    measured = measure_energy(tokens_of([("abcd", -2.0), ("wxyz", None)]), LAMBDA, None)
    assert measured.energy == pytest.approx(0.5)


@pytest.mark.parametrize("tokens", [(), (Token("abc", None),), (Token("", -1.0),), (Token("</s>", -1.0, True),)])
def test_measure_is_none_without_characters(tokens):
    assert measure_energy(tokens, LAMBDA, None) is None


@given(st.lists(words, min_size=1, max_size=12), st.floats(-3, -0.01), st.data())
def test_free_energy_is_invariant_under_resplitting_of_a_uniform_sequence(parts, per_character, data):
    """F of a sequence with equal surprisal per character does not depend on its tokens."""
    text = "".join(parts)
    size = data.draw(st.integers(1, len(text)))
    # Equal pieces, so that the sequence is uniform per token too, in both cuttings.
    text = text[: len(text) // size * size]
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    by_piece = measure_energy(tokens_of([(p, per_character * size) for p in pieces]), LAMBDA, None)
    by_letter = measure_energy(tokens_of([(c, per_character) for c in text]), LAMBDA, None)
    assert by_piece.free_energy == pytest.approx(by_letter.free_energy, abs=1e-9)


def test_alignment_is_the_z_score():
    assert Alignment(2.0, 4.0).align(10.0) == 2.0
    values = np.array([1.0, 2.0, 6.0])
    aligned = [Alignment(values.mean(), values.std()).align(v) for v in values]
    assert np.mean(aligned) == pytest.approx(0)
    assert np.std(aligned) == pytest.approx(1)


@given(st.lists(st.tuples(st.text(max_size=5), st.none() | logprob, st.booleans()), max_size=20))
def test_measure_energy_never_raises_and_is_finite(rows):
    measured = measure_energy(tuple(Token(*row) for row in rows), LAMBDA, None)
    if measured is not None:
        assert all(math.isfinite(x) for x in (measured.energy, measured.varentropy, measured.free_energy))
        assert measured.energy >= 0
        assert measured.varentropy >= 0


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
def test_only_format_markers_are_scaffold(tokens, expected):
    assert content(*tokens) == expected


def test_a_token_with_format_and_content_is_content():
    assert content("Answer: 42") == ["Answer: 42"]


@given(st.text(max_size=60), st.data())
def test_scaffold_does_not_depend_on_the_tokenizer(text, data):
    """The same characters are scaffold whether the text is one token or one token per letter."""
    by_letter = scaffold_mask(list(text))
    cut = data.draw(st.integers(0, len(text)))
    halves = scaffold_mask([text[:cut], text[cut:]])
    assert halves == [all(by_letter[:cut]), all(by_letter[cut:])]
