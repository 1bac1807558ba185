"""A text as the rows of its tokens (SPEC 2.4), by chunks: what stands between blanks is cut and embedded once.

spaCy's tokenizer looks at one such chunk at a time, and an embedding at one token; so the rows of "word," can be
kept, and most of a text is found in a table. What is not there is cut by spaCy in a memory zone that is renewed
from time to time: its vocabulary would otherwise keep every string that a server ever sees.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import accumulate, pairwise
from threading import Lock
from typing import Any, NamedTuple, cast

import numpy as np

from odar.difficulty.tok2vec import TokenVectors

KNOWN_LIMIT = 20_000
"""Chunks kept (about 40 MB); then the table starts afresh."""
ZONE_LIMIT = 2_000
"""Chunks cut in one memory zone: to enter one takes as long as to cut a chunk."""

# One blank after a word belongs to it; every other run of white space is a token.
_CHUNK = re.compile(r"(?<=\S) |(\S+|\s+)")


class TextRows(NamedTuple):
    """The rows of a text's tokens, chunk by chunk, and the tokens that begin a line."""

    rows: list[bytes]
    line_starts: list[int]


class ChunkTable:
    """Finds the rows of a text's tokens, for the tokenizer and the token vectors of one pipeline."""

    def __init__(self, pipeline: Any, vectors: TokenVectors) -> None:
        from spacy.attrs import LOWER, NORM, PREFIX, SHAPE, SUFFIX

        self._pipeline, self._vectors = pipeline, vectors
        self._attributes = [NORM, PREFIX, SUFFIX, SHAPE]
        # a new word is otherwise asked as well whether it looks like a URL, a currency, a stop word …
        getters, wanted = pipeline.vocab.lex_attr_getters, {LOWER, *self._attributes}
        pipeline.vocab.lex_attr_getters = {key: getters[key] for key in wanted}
        self._zone, self._in_zone = ExitStack(), ZONE_LIMIT
        self._known: dict[str, bytes] = {}
        self._lock = Lock()

    def __call__(self, text: str) -> TextRows:
        r"""The rows of all tokens.

        >>> from odar.difficulty.syntax import _chunks
        >>> rows, line_starts = _chunks()("Stop. Don't\ngo on!")
        >>> len(rows), line_starts  # Stop . | Do n't | newline | go | on !
        (5, [5])
        """
        chunks = cut(text)
        found = list(map(self._known.get, chunks))
        rows = self._learn(chunks, found) if None in found else cast("list[bytes]", found)
        return TextRows(rows, self._line_starts(chunks, rows) if "\n" in text else [])

    def _learn(self, chunks: Sequence[str], found: Sequence[bytes | None]) -> list[bytes]:
        """The rows of these chunks, of which some are found already; what is new is kept."""
        new = list(dict.fromkeys(chunk for chunk, rows in zip(chunks, found, strict=True) if rows is None))
        with self._lock:
            learned = dict(zip(new, self._embed(new), strict=True))
            if len(self._known) + len(new) > KNOWN_LIMIT:
                self._known.clear()
            self._known.update(learned)
        return [learned[chunk] if rows is None else rows for chunk, rows in zip(chunks, found, strict=True)]

    def _embed(self, chunks: Sequence[str]) -> Iterator[bytes]:
        self._in_zone += len(chunks)
        if self._in_zone > ZONE_LIMIT:
            self._zone.close()
            self._zone.enter_context(self._pipeline.memory_zone())
            self._in_zone = len(chunks)
        parts = [self._pipeline.tokenizer(chunk).to_array(self._attributes) for chunk in chunks]
        rows = self._vectors.embed(parts[0] if len(parts) == 1 else np.concatenate(parts))
        ends = accumulate((len(part) * self._vectors.row_bytes for part in parts), initial=0)
        return (rows[start:end] for start, end in pairwise(ends))

    def _line_starts(self, chunks: Sequence[str], rows: Sequence[bytes]) -> list[int]:
        """A line break is a token, or part of one; the token after it begins a line."""
        tokens = accumulate(len(row) // self._vectors.row_bytes for row in rows)
        return [end for chunk, end in zip(chunks, tokens, strict=True) if "\n" in chunk]


def cut(text: str) -> list[str]:
    """Words and runs of white space; one blank after a word belongs to it.

    >>> cut("Stop.  Go on")
    ['Stop.', ' ', 'Go', 'on']
    """
    words = text.split()
    if " ".join(words) == text:  # as most questions are: a fifth of the time
        return words
    return [chunk for chunk in _CHUNK.findall(text) if chunk]
