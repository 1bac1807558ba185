"""Our decoder and vectors against spaCy's, and what a text must not depend on."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odar.difficulty.parser import GreedyParser, Parse
from odar.difficulty.syntax import _chunks, _parser, _pipeline, _vectors
from odar.difficulty.tok2vec import product

WORDS = [
    "the",
    "a",
    "dog",
    "man",
    "who",
    "that",
    "which",
    "said",
    "lives",
    "lived",
    "here",
    "because",
    "if",
    "when",
    "it",
    "rained",
    "to",
    "go",
    "went",
    ",",
    ".",
    "?",
    "!",
    "(",
    ")",
    "and",
    "or",
    "but",
    "not",
    "n't",
    "'s",
    "12",
    "$",
    "5",
    "formula",
    "\n",
    "is",
    "was",
    "has",
    "whom",
    "did",
    "they",
    "her",
    "John",
    "Paris",
    "does",
    "what",
    "prove",
    "it's",
    "can't",
    "xqzt",
    "-",
    ":",
    ";",
    "of",
    "in",
    "on",
]
TEXTS = [
    "The man who lives here said that he left because it rained.", "Go.", "x", "?", "one two\nthree four\n\nfive",
    "Janet's ducks lay 16 eggs per day. She eats three for breakfast. How much in dollars does she make every day?",
    "(((", "no verb here , just , nouns", "what did the man who the dog that the cat saw bit say that he wanted to do",
]  # fmt: skip


def ours(text: str) -> Parse:
    rows, line_starts = _chunks()(text)
    return _parser()(_vectors()(rows), line_starts)


def spacys(text: str) -> Parse:
    """The same vectors and sentence starts through the trained pipe itself."""
    doc, pipe = _pipeline().make_doc(text), _pipeline().get_pipe("parser")
    doc.tensor = _vectors()(_chunks()(text).rows)
    for token in list(doc)[1:]:
        if "\n" in doc[token.i - 1].text:
            token.is_sent_start = True
    pipe.set_annotations([doc], pipe.predict([doc]))
    return Parse([token.head.i for token in doc], [token.dep_ == "clause" for token in doc])


@pytest.mark.parametrize("text", TEXTS)
def test_the_trees_are_spacys(text: str) -> None:
    assert ours(text) == spacys(text)


# The same examples in each run: where two transitions differ by less than a millionth, the trees may differ.
@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=60))
def test_the_trees_of_nonsense_are_spacys(words: list[str]) -> None:
    assert ours(" ".join(words)) == spacys(" ".join(words))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 80), st.floats(0, 1e4), st.sets(st.integers(0, 80)))
def test_any_vectors_give_trees(seed: int, tokens: int, scale: float, starts: set[int]) -> None:
    """Scores that would overflow are cut; every token reaches a root; a sentence holds its arcs."""
    vectors = (np.random.default_rng(seed).normal(size=(tokens, 48)) * scale).astype(np.float32)
    heads, clauses = _parser()(vectors, starts)
    assert len(heads) == len(clauses) == tokens
    for node, clause in enumerate(clauses):
        assert not (clause and heads[node] == node)
        assert not any(min(node, heads[node]) < start <= max(node, heads[node]) for start in starts)
        for _ in range(tokens):
            node = heads[node]
        assert heads[node] == node


def test_another_architecture_is_refused() -> None:
    pipe = _pipeline().get_pipe("parser")
    model = SimpleNamespace(attrs={"has_upper": True}, get_ref=pipe.model.get_ref, walk=pipe.model.walk)
    with pytest.raises(ValueError, match="train_parser"):
        GreedyParser(SimpleNamespace(model=model, move_names=pipe.move_names))


def test_vectors_are_spacys() -> None:
    tok2vec_pipe = _pipeline().get_pipe("tok2vec")
    for text in [*TEXTS, "can't won't"]:
        doc = _pipeline().make_doc(text)
        np.testing.assert_allclose(_vectors()(_chunks()(text).rows), tok2vec_pipe.predict([doc])[0], atol=2e-5)


@given(st.integers(1, 70), st.integers(0, 2**32 - 1))
def test_product(rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, weights = rng.normal(size=(rows, 5)).astype(np.float32), rng.normal(size=(5, 7)).astype(np.float32)
    np.testing.assert_allclose(product(x, weights), x @ weights, rtol=1e-4, atol=1e-5)
