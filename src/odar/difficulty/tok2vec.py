"""The parser's token vectors in plain numpy: what spaCy's tok2vec computes, five times as fast for one query.

The embedding (hashed word attributes, mixed by one maxout) does not depend on context, so it is computed once
per word form and kept. The convolutions that follow are small products. A text's vectors depend on nothing
but the text: each word form is embedded alone, each text is convolved alone.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

CACHE_LIMIT = 100_000
"""Word forms kept; then the cache starts afresh, so that a server fed with noise does not grow for ever."""


class _Maxout:
    """max over pieces of W·x + b, then layer normalisation."""

    def __init__(self, maxout: Any, norm: Any) -> None:
        # thinc's product, not numpy's: one thread, and a row's result does not depend on the other rows. On a
        # busy machine numpy's threads wait for one another, which made the parse five times as slow.
        self.gemm = maxout.ops.gemm
        weights, bias = maxout.get_param("W"), maxout.get_param("b")
        self.width, pieces, _ = weights.shape
        # the pieces side by side: the maximum is then taken over contiguous blocks
        self.weights = np.concatenate([weights[:, p].T for p in range(pieces)], axis=1)
        self.bias = np.concatenate([bias[:, p] for p in range(pieces)])
        self.gain, self.shift = norm.get_param("G"), norm.get_param("b")

    def __call__(self, x: Vectors) -> Vectors:
        y = self.gemm(x, self.weights)
        y += self.bias
        best = y[:, : self.width]
        for start in range(self.width, y.shape[1], self.width):
            best = np.maximum(best, y[:, start : start + self.width])
        best = best - best.mean(axis=1, keepdims=True)
        best /= np.sqrt((best * best).mean(axis=1, keepdims=True) + np.float32(1e-8))
        best *= self.gain
        best += self.shift
        return cast(Vectors, best)


class TokenVectors:
    """Vectors of a spaCy `Doc`, by the weights of a trained `spacy.Tok2Vec.v2` pipe."""

    def __init__(self, tok2vec: Any) -> None:
        from spacy.attrs import NORM, ORTH, PREFIX, SHAPE, SUFFIX

        layers = list(tok2vec.model.walk())
        self._tables = [(t.get_param("E"), t.attrs["seed"]) for t in layers if t.name == "hashembed"]
        maxouts, norms = ([n for n in layers if n.name == kind] for kind in ("maxout", "layernorm"))
        stacks = [_Maxout(maxout, norm) for maxout, norm in zip(maxouts, norms, strict=True)]
        self._mix, self._convolutions = stacks[0], stacks[1:]
        self._ops = tok2vec.model.ops
        self._attributes = [ORTH, NORM, PREFIX, SUFFIX, SHAPE]
        self._known: dict[tuple[int, int], Vectors] = {}

    def __call__(self, doc: Any) -> Vectors:
        """(tokens, width), as `tok2vec.predict([doc])[0]`."""
        keys = doc.to_array(self._attributes)
        if len(self._known) > CACHE_LIMIT:
            self._known.clear()
        known, rows = self._known, []
        for i, (orth, norm) in enumerate(keys[:, :2].tolist()):
            vector = known.get((orth, norm))
            if vector is None:
                vector = known[orth, norm] = self._embed(keys[i, 1:])
            rows.append(vector)
        # spaCy pads with as many zero rows as a token can see to either side
        pad = len(self._convolutions)
        x = np.zeros((len(rows) + 2 * pad, self._mix.width), np.float32)
        x[pad : pad + len(rows)] = rows
        for layer in self._convolutions:
            window = np.zeros((len(x), 3, x.shape[1]), np.float32)
            window[1:, 0] = x[:-1]
            window[:, 1] = x
            window[:-1, 2] = x[1:]
            x = x + layer(window.reshape(len(x), -1))
        return x[pad : pad + len(rows)]

    def _embed(self, attributes: NDArray[np.uint64]) -> Vectors:
        parts = [
            table[self._ops.hash(attributes[i : i + 1], seed)[0] % len(table)].sum(axis=0)
            for i, (table, seed) in enumerate(self._tables)
        ]
        return cast(Vectors, self._mix(np.concatenate(parts)[None])[0])
