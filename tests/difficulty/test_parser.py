"""The decoder and the vectors, compared with the trees of spaCy for the same weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odar.difficulty.parser import GreedyParser, matmul_in_blocks, shipped_parser

TREES = json.loads(Path(__file__).with_name("trees.json").read_text("utf-8"))
"""Heads, clauses and sums of vectors. Written when the decoder and the vectors were still compared with spaCy's own, to
which they were equal on these texts and on 300 random ones."""


@pytest.mark.parametrize("tree", TREES, ids=range(len(TREES)))
def test_trees_and_vectors_equal_those_of_spacy(tree: dict) -> None:
    heads, clauses = shipped_parser()(tree["text"])
    assert (heads, [i for i, clause in enumerate(clauses) if clause]) == (tree["heads"], tree["clauses"])
    vectors = shipped_parser().vectors(shipped_parser().rows(tree["text"])[0])
    assert vectors.sum(axis=1).tolist() == pytest.approx(tree["vector_sums"], abs=2e-3)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 80), st.floats(0, 1e4), st.sets(st.integers(0, 80)))
def test_any_vectors_give_trees(seed: int, tokens: int, scale: float, starts: set[int]) -> None:
    """Large scores are clipped, every token reaches a root, and arcs stay inside a sentence."""
    vectors = (np.random.default_rng(seed).normal(size=(tokens, 48)) * scale).astype(np.float32)
    heads, clauses = shipped_parser()._decode(vectors, starts)
    assert len(heads) == len(clauses) == tokens
    for node, clause in enumerate(clauses):
        assert not (clause and heads[node] == node)
        assert not any(min(node, heads[node]) < start <= max(node, heads[node]) for start in starts)
        for _ in range(tokens):
            node = heads[node]
        assert heads[node] == node


def test_another_architecture_is_rejected() -> None:
    arrays = {"state_W": np.zeros((13, 7, 2, 32)), "moves": np.array(["S", "D"])}
    with pytest.raises(AssertionError, match="train_parser"):
        GreedyParser(arrays)


@given(st.integers(1, 70), st.integers(0, 2**32 - 1))
def test_product_equals_matrix_multiplication(rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, weights = rng.normal(size=(rows, 5)).astype(np.float32), rng.normal(size=(5, 7)).astype(np.float32)
    np.testing.assert_allclose(matmul_in_blocks(x, weights), x @ weights, rtol=1e-4, atol=1e-5)
