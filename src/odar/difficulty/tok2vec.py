"""The parser's token vectors in plain numpy: what spaCy's tok2vec computes, ten times as fast for one query.

The embedding (hashed word attributes, mixed by one maxout) does not depend on context, and a convolution over
three tokens is a sum of three products, one for each place a token can have in the window. So a word form's
embedding and its three products in the first convolution are computed once and kept as one row of a table; a
text is then a gather and a sum. Later convolutions multiply first and shift after.

A text's vectors depend on nothing but the text: each word form is embedded alone, each text is convolved alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from threading import Lock
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from odar.difficulty.tokenizer import Tokenizer, table_rows

Vectors = NDArray[np.float32]
Weights = Mapping[str, NDArray[Any]]
"""The arrays of data/parser.npz."""

KNOWN_LIMIT = 20_000
"""Chunks whose rows are kept (about 40 MB); then the table starts afresh."""

_BLOCK = 16

# One blank after a word belongs to it; every other run of white space is a token.
_CHUNK = re.compile(r"(?<=\S) |(\S+|\s+)")


def product(x: Vectors, weights: Vectors) -> Vectors:
    """x @ weights, on one thread, whatever the number of rows.

    In blocks of 16 rows, each too small for BLAS to wake its threads: these wait for one another, which on a busy
    machine took ten times as long as the product itself. Still two to three times as fast as thinc's own product.
    """
    rows, inner = x.shape
    blocks = -(-rows // _BLOCK)
    padded = np.zeros((blocks, _BLOCK, inner), np.float32)
    padded.reshape(-1, inner)[:rows] = x
    return cast(Vectors, np.matmul(padded, weights).reshape(-1, weights.shape[1])[:rows])


def row_by_row(x: Vectors, weights: Vectors) -> Vectors:
    """x @ weights, the same to the last digit for a row whatever the others are; slower than `product` for many."""
    return cast(Vectors, np.matmul(x[:, None], weights)[:, 0])


class _Maxout:
    """max over pieces of W·x + b, then layer normalisation."""

    def __init__(self, arrays: Weights, layer: int) -> None:
        weights, bias = arrays[f"maxout{layer}_W"], arrays[f"maxout{layer}_b"]
        self.width, pieces, _ = weights.shape
        # the pieces side by side: the maximum is then taken over contiguous blocks
        self.weights = np.concatenate([weights[:, p].T for p in range(pieces)], axis=1)
        self.bias = np.concatenate([bias[:, p] for p in range(pieces)])
        self.gain, self.shift = arrays[f"norm{layer}_G"], arrays[f"norm{layer}_b"]
        self._share = np.float32(1 / self.width)

    def activate(self, y: Vectors) -> Vectors:
        """What follows W·x + b, which is overwritten."""
        best = y[:, : self.width]
        for start in range(self.width, y.shape[1], self.width):
            best = np.maximum(best, y[:, start : start + self.width])
        best = np.subtract(best, np.add.reduce(best, axis=1, keepdims=True) * self._share)
        variance = np.add.reduce(np.square(best), axis=1, keepdims=True)
        variance *= self._share
        variance += np.float32(1e-8)
        best *= self.gain / np.sqrt(variance)
        best += self.shift
        return best


class _Convolution(_Maxout):
    """A maxout over a window of three tokens, with a residual connection."""

    def __init__(self, arrays: Weights, layer: int) -> None:
        super().__init__(arrays, layer)
        # three matrices side by side: for the token before, the token itself, the token after
        self._places = np.ascontiguousarray(np.concatenate(np.split(self.weights, 3), axis=1))
        self._size = self.weights.shape[1]

    def products(self, x: Vectors, multiply: Callable[[Vectors, Vectors], Vectors] = product) -> Vectors:
        """What each row adds to the row after it, to itself and to the row before it."""
        y = multiply(x, self._places)
        y[:, self._size : 2 * self._size] += self.bias
        return y

    def combine(self, x: Vectors, products: Vectors) -> Vectors:
        """From rows and their products, all rows but the first and the last."""
        size = self._size
        y = products[:-2, :size] + products[1:-1, size : 2 * size]
        y += products[2:, 2 * size :]
        y = self.activate(y)
        y += x[1:-1]
        return y


class TokenVectors:
    """Vectors of tokens, by the weights that `scripts/train_parser.py` exported."""

    def __init__(self, arrays: Weights) -> None:
        self._mix = _Maxout(arrays, 0)
        layers = sum(name.startswith("maxout") for name in arrays) // 2
        self._first, *self._later = [_Convolution(arrays, layer) for layer in range(1, layers)]
        self._seeds = arrays["seeds"].tolist()
        tables = [arrays[f"table{i}"] for i in range(len(self._seeds))]
        # a sum of table rows is then mixed by a matrix: the rows can be mixed beforehand
        weights = np.split(self._mix.weights, len(tables))
        mixed = [product(table, part) for table, part in zip(tables, weights, strict=True)]
        # one below the other, so that one look finds the rows of all attributes; each has four rows in its table
        self._mixed = np.concatenate(mixed)
        sizes = [len(table) for table in mixed]
        above = np.cumsum([0, *sizes[:-1]], dtype=np.uint32)
        self._sizes, self._above = np.array(sizes, np.uint32)[:, None, None], above[:, None, None]
        # spaCy pads with as many zero rows as a token can see to either side; each layer uses up one
        zero = self._rows(np.zeros((1, self._mix.width), np.float32)).tobytes()
        self._edge, self.row_bytes = zero * (1 + len(self._later)), len(zero)

    def embed(self, attributes: NDArray[np.uint64]) -> bytes:
        """The rows of so many word forms, given norm, prefix, suffix and shape of each: `row_bytes` a row."""
        hashes = np.array([table_rows(*column) for column in zip(attributes.T.copy(), self._seeds, strict=True)])
        hashes %= self._sizes
        hashes += self._above
        total = np.add.reduce(self._mixed.take(hashes, axis=0), axis=(0, 2))
        total += self._mix.bias
        return self._rows(self._mix.activate(total)).tobytes()

    def __call__(self, rows: Iterable[bytes]) -> Vectors:
        """(tokens, width), as `tok2vec.predict` for the tokens whose rows these are, in their order."""
        # joined bytes are a matrix at once; numpy needs five times as long to stack as many small rows
        table = np.frombuffer(b"".join([self._edge, *rows, self._edge]), np.float32)
        table = table.reshape(-1, self.row_bytes // 4)
        width = self._mix.width
        x = self._first.combine(table[:, :width], table[:, width:])
        for layer in self._later:
            x = layer.combine(x, layer.products(x))
        return x

    def _rows(self, embedded: Vectors) -> Vectors:
        """Each form's embedding, and what it gives to its neighbours and itself in the first convolution.

        One by one, because BLAS's last digit depends on where in a matrix a row stands: a form has one row, always.
        """
        return np.concatenate([embedded, self._first.products(embedded, row_by_row)], axis=1)


class TextRows(NamedTuple):
    """The rows of a text's tokens, chunk by chunk, and the tokens that begin a line."""

    rows: list[bytes]
    line_starts: list[int]


class ChunkTable:
    """The rows of a text's tokens. Each chunk ("word,") is cut and embedded once and then looked up."""

    def __init__(self, tokenizer: Tokenizer, vectors: TokenVectors) -> None:
        self._tokenizer, self._vectors = tokenizer, vectors
        self._known: dict[str, bytes] = {}
        self._lock = Lock()

    def __call__(self, text: str) -> TextRows:
        r"""The rows of all tokens.

        >>> from odar.difficulty.syntax import shipped_parser
        >>> rows, line_starts = shipped_parser().chunks("Stop. Don't\ngo on!")
        >>> len(rows), line_starts  # Stop . | Do n't | newline | go | on !
        (5, [5])
        """
        chunks = cut(text)
        found = list(map(self._known.get, chunks))
        rows = self._learn(chunks, found) if None in found else cast("list[bytes]", found)
        return TextRows(rows, self._line_starts(chunks, rows) if "\n" in text else [])

    def _learn(self, chunks: Sequence[str], found: Sequence[bytes | None]) -> list[bytes]:
        """The rows of these chunks, some of which are known; new ones are kept."""
        new = list(dict.fromkeys(chunk for chunk, rows in zip(chunks, found, strict=True) if rows is None))
        learned = dict(zip(new, self._embed(new), strict=True))
        with self._lock:
            if len(self._known) + len(new) > KNOWN_LIMIT:
                self._known = {}
            self._known.update(learned)
        return [learned[chunk] if rows is None else rows for chunk, rows in zip(chunks, found, strict=True)]

    def _embed(self, chunks: Sequence[str]) -> Iterator[bytes]:
        words = list(map(self._tokenizer, chunks))
        attributes = [self._tokenizer.attributes(word) for part in words for word in part]
        rows = self._vectors.embed(np.array(attributes, np.uint64).reshape(-1, 4))
        ends = accumulate((len(part) * self._vectors.row_bytes for part in words), initial=0)
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
    if " ".join(words) == text:  # true of most questions, and five times as fast
        return words
    return [chunk for chunk in _CHUNK.findall(text) if chunk]
