"""The parser's token vectors in plain numpy: what spaCy's tok2vec computes, ten times as fast for one query.

The embedding (hashed word attributes, mixed by one maxout) does not depend on context, and a convolution over
three tokens is a sum of three products, one for each place a token can have in the window. So a word form's
embedding and its three products in the first convolution are computed once and kept as one row of a table; a
text is then a gather and a sum. Later convolutions multiply first and shift after.

A text's vectors depend on nothing but the text: each word form is embedded alone, each text is convolved alone.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

KNOWN_LIMIT = 20_000
"""Word forms kept (27 MB); then the table starts afresh, so that a server fed with noise does not grow for ever."""

_BLOCK = 16


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


class _Maxout:
    """max over pieces of W·x + b, then layer normalisation."""

    def __init__(self, maxout: Any, norm: Any) -> None:
        weights, bias = maxout.get_param("W"), maxout.get_param("b")
        self.width, pieces, _ = weights.shape
        # the pieces side by side: the maximum is then taken over contiguous blocks
        self.weights = np.concatenate([weights[:, p].T for p in range(pieces)], axis=1)
        self.bias = np.concatenate([bias[:, p] for p in range(pieces)])
        self.gain, self.shift = norm.get_param("G"), norm.get_param("b")
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

    def __init__(self, maxout: Any, norm: Any) -> None:
        super().__init__(maxout, norm)
        # three matrices side by side: for the token before, the token itself, the token after
        self._places = np.ascontiguousarray(np.concatenate(np.split(self.weights, 3), axis=1))
        self._size = self.weights.shape[1]

    def products(self, x: Vectors) -> Vectors:
        """What each row adds to the row after it, to itself and to the row before it."""
        y = product(x, self._places)
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
    """Vectors of a spaCy `Doc`, by the weights of a trained `spacy.Tok2Vec.v2` pipe."""

    def __init__(self, tok2vec: Any) -> None:
        from spacy.attrs import NORM, ORTH, PREFIX, SHAPE, SUFFIX

        layers = list(tok2vec.model.walk())
        self._tables = [(t.get_param("E"), t.attrs["seed"]) for t in layers if t.name == "hashembed"]
        maxouts, norms = ([n for n in layers if n.name == kind] for kind in ("maxout", "layernorm"))
        self._mix = _Maxout(maxouts[0], norms[0])
        pairs = zip(maxouts[1:], norms[1:], strict=True)
        self._first, *self._later = [_Convolution(maxout, norm) for maxout, norm in pairs]
        self._hash = tok2vec.model.ops.hash
        self._form, self._attributes = [ORTH, NORM], [NORM, PREFIX, SUFFIX, SHAPE]
        self._known: dict[int, bytes] = {}
        self._padding = self._row(np.zeros((1, self._mix.width), np.float32))

    def __call__(self, doc: Any) -> Vectors:
        """(tokens, width), as `tok2vec.predict([doc])[0]`."""
        # spaCy pads with as many zero rows as a token can see to either side; each layer uses up one
        edge = [self._padding] * (1 + len(self._later))
        # joined bytes are a matrix at once; numpy needs five times as long to stack as many small rows
        rows = np.frombuffer(b"".join([*edge, *self._rows(doc), *edge]), np.float32)
        rows = rows.reshape(-1, len(self._padding) // 4)
        width = self._mix.width
        x = self._first.combine(rows[:, :width], rows[:, width:])
        for layer in self._later:
            x = layer.combine(x, layer.products(x))
        return x

    def _rows(self, doc: Any) -> list[bytes]:
        """Each token's embedding and its products in the first convolution, as float32 in bytes."""
        forms = doc.to_array(self._form)
        # a form is its spelling and its norm, both 64-bit hashes: one number made of the two will do
        keys = (forms[:, 0] * np.uint64(0x9E3779B97F4A7C15) + forms[:, 1]).tolist()
        found = list(map(self._known.get, keys))
        if None in found:
            attributes = doc.to_array(self._attributes)
            found = [
                row or self._learn(key, attributes[i]) for i, (key, row) in enumerate(zip(keys, found, strict=True))
            ]
        return cast("list[bytes]", found)

    def _learn(self, key: int, attributes: NDArray[np.uint64]) -> bytes:
        parts = [
            table[self._hash(attributes[i : i + 1], seed)[0] % len(table)].sum(axis=0)
            for i, (table, seed) in enumerate(self._tables)
        ]
        embedded = self._mix.activate(product(np.concatenate(parts)[None], self._mix.weights) + self._mix.bias)
        if len(self._known) >= KNOWN_LIMIT:
            self._known.clear()
        row = self._known[key] = self._row(embedded)
        return row

    def _row(self, embedded: Vectors) -> bytes:
        return np.concatenate([embedded, self._first.products(embedded)], axis=1).tobytes()
