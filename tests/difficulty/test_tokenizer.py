"""Tokens equal those of spaCy, independently of earlier texts, in bounded memory."""

from __future__ import annotations

import threading
from copy import copy
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odar.difficulty import parser
from odar.difficulty.parser import Parser, shipped_parser, split_chunks
from odar.difficulty.tokenizer import Tokenizer, murmur_hash, table_rows

WORDS = [
    "Go", "don't", "3.14", "(a)", "x=1;", "U.S.", "a.m.", "C++", "e.g.,", "'tis", "$5", "naïve", "北京", "!?", "--",
    "can't", "(a)(b)", "y'all've", "http://a.b/c?d=e", "well-known", "O'Brien's", ":-)", "hello:)", "5p.m.", "x^2+1", "...end",
    "'''", "ORTH", "NORM", "I'd've.", "(e.g.)", "10km", "a/b", "£5m", "\ufffd",
]  # fmt: skip
BLANKS = [" ", "  ", "\n", " \n", "\n ", "\t", "\u00a0", "\u2003 ", "\r\n", "\x1f", "   \n\n "]
texts = st.lists(st.tuples(st.sampled_from(["", *BLANKS]), st.sampled_from(WORDS), st.sampled_from(BLANKS))).map(
    lambda parts: "".join(map("".join, parts))
)
glued = st.lists(
    st.sampled_from([*WORDS, ".", ",", "(", ")", "'", '"', "-", "s", "n't"]), min_size=1, max_size=4
).map("".join)


@cache
def english() -> Any:
    return pytest.importorskip("spacy", reason="compared with spaCy where it is installed").blank("en")


def tokenizer() -> Tokenizer:
    return shipped_parser().tokenizer


def spacy_attributes(text: str) -> np.ndarray:
    from spacy.attrs import NORM, PREFIX, SHAPE, SUFFIX

    return english().make_doc(text).to_array([NORM, PREFIX, SUFFIX, SHAPE])


def tokens(table: Parser, text: str) -> int:
    return sum(map(len, table.rows(text)[0])) // shipped_parser().vectors.row_bytes


@pytest.fixture
def fresh() -> Parser:
    parser = copy(shipped_parser())
    parser._cache = {}
    return parser


@settings(max_examples=400, deadline=None)
@given(glued | st.sampled_from(WORDS))
def test_tokens_of_a_chunk_equal_those_of_spacy(chunk: str) -> None:
    ours = np.array([tokenizer().attributes(word) for word in tokenizer()(chunk)], np.uint64)
    assert [text for text, _ in tokenizer()(chunk)] == [token.text for token in english().make_doc(chunk)]
    np.testing.assert_array_equal(ours, spacy_attributes(chunk))


@settings(max_examples=200, deadline=None)
@given(texts)
@example(" leading")
@example("trailing ")
@example("two  blanks")
@example("a\n b \nc\n\nd")
def test_tokens_of_a_text_equal_those_of_spacy(text: str) -> None:
    attributes = spacy_attributes(text)
    rows = b"".join(shipped_parser().vectors.embed(attributes[i : i + 1]) for i in range(len(attributes)))
    assert b"".join(shipped_parser().rows(text)[0]) == rows


@settings(max_examples=200, deadline=None)
@given(texts)
def test_a_line_starts_after_each_token_with_a_break(text: str) -> None:
    assert shipped_parser().rows(text)[1] == [t.i + 1 for t in english().make_doc(text) if "\n" in t.text]


@given(st.text(max_size=40))
def test_strings_have_the_hash_of_spacy(text: str) -> None:
    strings = pytest.importorskip("spacy.strings", reason="compared with spaCy where it is installed")
    text = text.encode("utf-8", "replace").decode()
    assert murmur_hash(text.encode()) == strings.hash_string(text) or not text


def test_embedding_rows_equal_those_of_thinc() -> None:
    ops = pytest.importorskip("thinc.api", reason="compared with thinc where it is installed").NumpyOps()
    ids = np.random.default_rng(0).integers(0, 2**64, 500, dtype=np.uint64)
    np.testing.assert_array_equal(table_rows(ids, 9), ops.hash(ids, 9))


@settings(max_examples=300)
@given(texts | st.lists(st.sampled_from(WORDS)).map(" ".join) | st.text(" \t\nab\x1f\u2003"))
def test_chunks_match_the_pattern(text: str) -> None:
    assert split_chunks(text) == [chunk for chunk in parser._CHUNK.findall(text) if chunk]


def test_rows_do_not_depend_on_earlier_texts(fresh: Parser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser, "TABLE_LIMIT", 4)
    for text in ["one two three", "three two one (four)", "five six seven", "one two three"]:
        assert fresh.rows(text) == shipped_parser().rows(text)
        assert len(fresh._cache) <= 4


def test_a_text_may_have_more_chunks_than_the_table(fresh: Parser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser, "TABLE_LIMIT", 4)
    text = " ".join(f"w{i}" for i in range(50))
    assert fresh.rows(text) == shipped_parser().rows(text)


def test_threads_can_fill_the_table_concurrently(fresh: Parser) -> None:
    seen: list[Any] = []

    def learn(start: int) -> None:
        seen.extend(fresh.rows(f"thread{i} says word{i % 7}") for i in range(start, start + 60))

    threads = [threading.Thread(target=learn, args=(30 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 240
    assert tokens(fresh, "thread5 says word5") == 3
