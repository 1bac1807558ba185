"""The table of chunks: spaCy's own tokens, whatever was seen before, in bounded memory."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odar.difficulty import chunks
from odar.difficulty.chunks import ChunkTable, cut
from odar.difficulty.syntax import _chunks, _pipeline, _vectors

WORDS = [
    "Go",
    "don't",
    "3.14",
    "(a)",
    "x=1;",
    "U.S.",
    "a.m.",
    "C++",
    "e.g.,",
    "'tis",
    "$5",
    "naïve",
    "北京",
    "!?",
    "--",
]
BLANKS = [" ", "  ", "\n", " \n", "\n ", "\t", "\u00a0", "\u2003 ", "\r\n", "\x1f", "   \n\n "]
texts = st.lists(st.tuples(st.sampled_from(["", *BLANKS]), st.sampled_from(WORDS), st.sampled_from(BLANKS))).map(
    lambda parts: "".join(map("".join, parts))
)


@pytest.fixture
def fresh() -> ChunkTable:
    """A table with a pipeline of its own: memory zones must not be nested."""
    return ChunkTable(_pipeline.__wrapped__(), _vectors())


def tokens(table: ChunkTable, text: str) -> int:
    return sum(map(len, table(text).rows)) // _vectors().row_bytes


def whole(text: str) -> bytes:
    """The rows by way of spaCy's tokens of the whole text, without the table."""
    from spacy.attrs import NORM, PREFIX, SHAPE, SUFFIX

    attributes = _pipeline().make_doc(text).to_array([NORM, PREFIX, SUFFIX, SHAPE])
    return b"".join(_vectors().embed(attributes[i : i + 1]) for i in range(len(attributes)))


@settings(max_examples=200, deadline=None)
@given(texts)
@example(" leading")
@example("trailing ")
@example("two  blanks")
@example("a\n b \nc\n\nd")
def test_the_tokens_are_those_of_the_whole_text(text: str) -> None:
    assert b"".join(_chunks()(text).rows) == whole(text)


@settings(max_examples=200, deadline=None)
@given(texts)
def test_a_line_starts_after_each_token_with_a_break(text: str) -> None:
    assert _chunks()(text).line_starts == [t.i + 1 for t in _pipeline().make_doc(text) if "\n" in t.text]


@settings(max_examples=300)
@given(texts | st.lists(st.sampled_from(WORDS)).map(" ".join) | st.text(" \t\nab\x1f\u2003"))
def test_single_blanks_are_cut_as_any_others(text: str) -> None:
    assert cut(text) == [chunk for chunk in chunks._CHUNK.findall(text) if chunk]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from([*WORDS, "can't", "(a)(b)"]), min_size=1, max_size=8))
def test_a_form_has_one_row_whatever_is_embedded_with_it(words: list[str]) -> None:
    from spacy.attrs import NORM, PREFIX, SHAPE, SUFFIX

    attributes = _pipeline().make_doc(" ".join(words)).to_array([NORM, PREFIX, SUFFIX, SHAPE])
    alone = b"".join(_vectors().embed(attributes[i : i + 1]) for i in range(len(attributes)))
    assert _vectors().embed(attributes) == alone


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_any_text_has_rows(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    assert bool(text) == bool(tokens(_chunks(), text))


def test_rows_do_not_depend_on_what_was_seen_before(fresh: ChunkTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "KNOWN_LIMIT", 4)
    for text in ["one two three", "three two one (four)", "five six seven", "one two three"]:
        assert fresh(text) == _chunks()(text)
        assert len(fresh._known) <= 4


def test_one_text_of_more_chunks_than_are_kept(fresh: ChunkTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "KNOWN_LIMIT", 4)
    text = " ".join(f"w{i}" for i in range(50))
    assert fresh(text) == _chunks()(text)


def test_the_vocabulary_does_not_grow_with_what_is_seen(fresh: ChunkTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "ZONE_LIMIT", 50)
    before = len(fresh._pipeline.vocab.strings)
    for i in range(200):
        fresh(f"unheard{i}of word{i}s, here{i}")
    assert len(fresh._pipeline.vocab.strings) < before + 4 * 50


def test_threads_may_learn_at_once(fresh: ChunkTable) -> None:
    table, seen = fresh, []

    def learn(start: int) -> None:
        seen.extend(table(f"thread{i} says word{i % 7}") for i in range(start, start + 60))

    threads = [threading.Thread(target=learn, args=(30 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 240
    assert tokens(table, "thread5 says word5") == 3


def test_vectors_of_nothing_and_of_one() -> None:
    assert _vectors()([]).shape == (0, 48)
    assert _vectors()(_chunks()("Go").rows).dtype == np.float32
