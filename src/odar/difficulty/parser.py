"""Greedy arc-eager parsing (SPEC 2.4) by the weights of a trained spaCy parser; the same trees as spaCy's.

A state of the parser has eight places (the first of the queue, the top of the stack, their children …); what the
token in each place adds to the score of each transition is known beforehand, so that a step is a sum of eight rows.
Here a row is one big integer that holds all scores side by side, 32 bits each: one addition adds them all. The last
three bits of a score name its transition, so that the highest score also says whose it is.

spaCy's compiled decoder is not used: it releases and takes the interpreter's lock some twenty times a step, which
is most of its time, and lets other threads of a server run first.

Token vectors are what spaCy's tok2vec computes, ten times as fast for one query. The embedding (hashed word
attributes, mixed by one maxout) does not depend on context, and a convolution over three tokens is a sum of three
products, one for each position in the window. So a word form's embedding and its three products in the first
convolution are computed once and kept as one row of a table; a text is then a gather and a sum. Later convolutions
multiply first and shift after. Each word form is embedded alone and each text is convolved alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from operator import add
from struct import Struct
from threading import Lock
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from odar.difficulty.tokenizer import Tokenizer, table_rows

Vectors = NDArray[np.float32]
Weights = Mapping[str, NDArray[Any]]
"""The arrays of data/parser.npz."""
KNOWN_LIMIT = 3_000
"""Chunks whose rows are kept (about 6 MB); then the table is cleared."""
_BLOCK = 16
# One blank after a word belongs to it; every other run of white space is a token.
_CHUNK = re.compile(r"(?<=\S) |(\S+|\s+)")
PLACES = 8
SHIFT, REDUCE, LEFT, RIGHT, BREAK = range(5)
_KINDS = {"S": SHIFT, "D": REDUCE, "L": LEFT, "R": RIGHT, "B": BREAK}
_UNIT = 1 << 20
"""Scores are counted in millionths, about what float32 resolves."""
_ZERO = 1 << 25
"""Added to each score, so that none is negative; the sum of eight, with its transition's name, stays below 2^32.

A place may then add ±32 to a score; the trained parser's largest are about 13."""
_NAME_BITS = 3
_NAME = (1 << _NAME_BITS) - 1


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
        """Return what follows W·x + b, which is overwritten."""
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
        """Return what each row adds to the row after it, to itself and to the row before it."""
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
        """Return a row of `row_bytes` for each word form, given its norm, prefix, suffix and shape."""
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
        """Return each form's embedding, and what it gives to its neighbours and itself in the first convolution.

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
        """Return the rows of all tokens."""
        chunks = cut(text)
        found = list(map(self._known.get, chunks))
        rows = self._learn(chunks, found) if None in found else cast("list[bytes]", found)
        return TextRows(rows, self._line_starts(chunks, rows) if "\n" in text else [])

    def _learn(self, chunks: Sequence[str], found: Sequence[bytes | None]) -> list[bytes]:
        """Return the rows of these chunks, some of which are known; new ones are kept."""
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
        """Return the indices of tokens that begin a line: those after a chunk with a line break."""
        tokens = accumulate(len(row) // self._vectors.row_bytes for row in rows)
        return [end for chunk, end in zip(chunks, tokens, strict=True) if "\n" in chunk]


def cut(text: str) -> list[str]:
    """Return words and runs of white space; one blank after a word belongs to it."""
    words = text.split()
    if " ".join(words) == text:  # true of most questions, and five times as fast
        return words
    return [chunk for chunk in _CHUNK.findall(text) if chunk]


class Parse(NamedTuple):
    """A tree per sentence: each token's head (a root is its own), and whether its arc heads a clause."""

    heads: list[int]
    clauses: list[bool]


class GreedyParser:
    """Parses token vectors by the weights that `scripts/train_parser.py` exported."""

    def __init__(self, arrays: Weights) -> None:
        weights, names = arrays["state_W"], arrays["moves"].tolist()
        if len(weights) != PLACES or len(names) > _NAME + 1:
            raise ValueError(
                f"a parser of {len(weights)} places and {len(names)} transitions; "
                f"expected {PLACES} and at most {_NAME + 1}: scripts/train_parser.py"
            )
        # backwards: where two scores are the same, the first transition has the higher name and wins
        moves = names[::-1]
        self._kinds = [_KINDS[move[0]] for move in moves]
        self._clause = [move.endswith("-clause") for move in moves]
        # (place, transition, piece, input) to columns in the order place, piece, transition
        flat = weights.transpose(0, 2, 1, 3).reshape(-1, weights.shape[3])
        # two linear layers in a row are one
        self._weights = np.ascontiguousarray((flat @ arrays["linear_W"]).T) * np.float32(_UNIT)
        self._shift = (flat @ arrays["linear_b"]) * np.float32(_UNIT)
        pieces, lanes = weights.shape[2], weights.shape[1] * weights.shape[2]
        self._lanes = Struct(f">{lanes}I")
        self._row = np.dtype((np.void, self._lanes.size))
        # every state has a first place once: that one carries the names, and the bias
        self._zero = np.full(PLACES * lanes, _ZERO << _NAME_BITS, np.int32)
        self._zero[:lanes] += np.tile(np.arange(len(moves))[::-1], pieces)
        absent = arrays["state_pad"][0].transpose(0, 2, 1).reshape(-1) * np.float32(_UNIT)
        bias = arrays["state_b"].T.reshape(-1) * np.float32(_UNIT)
        self._shift[:lanes] += bias
        absent[:lanes] += bias
        self._absent = self._integers(absent[np.newaxis])

    def __call__(self, vectors: Vectors, starts: Iterable[int] = ()) -> Parse:
        """Return the parse of one text; `starts` are tokens known to begin a sentence."""
        scores = product(vectors, self._weights)
        scores += self._shift
        rows = self._integers(scores)
        # the row of an absent token comes last
        places = [[*rows[place::PLACES], absent] for place, absent in enumerate(self._absent)]
        return self._decode(len(vectors), places, starts)

    def _integers(self, scores: Vectors) -> list[int]:
        """One integer for each token and place, the places of a token together."""
        limit = np.float32(_ZERO - 8)
        np.minimum(scores, limit, out=scores)
        np.maximum(scores, -limit, out=scores)
        counted = scores.astype(np.int32)
        counted <<= _NAME_BITS
        counted += self._zero
        # the first lane is the highest part of an integer: Python reads and writes these without being told how
        return list(map(int.from_bytes, counted.astype(">i4").view(self._row).reshape(-1).tolist()))

    def _decode(self, tokens: int, places: list[list[int]], starts: Iterable[int]) -> Parse:
        """Take the best allowed transition until all tokens are off the queue and the stack.

        Both are chains: `under` a token on the stack lies the next one, `behind` one in the queue stands the next.
        What lies under a token stays the same while it is on the stack: the rows of the three on top are added up
        when it is pushed (`stacked`), and those of the first two in the queue beforehand (`queued`).
        "No token" has the number after the last: Python finds items by -1 more slowly.
        """
        first, second, top, below, third, child_of_first, left_of_top, right_of_top = places
        size, lanes, kinds, clause = self._lanes.size, self._lanes.unpack, self._kinds, self._clause
        none = tokens
        heads, under, left, right, older = ([none] * (tokens + 1) for _ in range(5))
        clauses, stuck, begins = [False] * tokens, [False] * tokens, [False] * tokens + [True]
        for start in starts:
            begins[min(start, none)] = True
        behind = [*range(1, tokens + 1), none]
        queued = list(map(add, first, second[1:]))
        stacked = [top[none] + below[none] + third[none]] * (tokens + 1)
        s, b = none, 0

        while b != none or s != none:
            if b == none:
                kind = REDUCE
            else:
                after = behind[b]
                total = (
                    queued[b] + stacked[s]
                    + child_of_first[left[b]] + left_of_top[left[s]] + right_of_top[right[s]]
                )  # fmt: skip
                # the pieces of the maxout lie one after the other: the best score of all is the best transition's
                scores: Sequence[int] = lanes(total.to_bytes(size))
                allowed = False
                while not allowed:
                    name = max(scores) & _NAME
                    kind = kinds[name]
                    if kind == SHIFT:
                        allowed = s == none or not (after == none or stuck[b] or begins[b])
                    elif kind == BREAK:
                        allowed = after == b + 1 and not begins[after]
                    else:
                        allowed = s != none and (kind == REDUCE or not begins[b])
                    if not allowed:
                        scores = [score for score in scores if score & _NAME != name]
            if kind == SHIFT:
                stacked[b] = top[b] + below[s] + third[under[s]]
                under[b], s, b = s, b, after
            elif kind == REDUCE:
                popped, s = s, under[s]
                if heads[popped] == none and s != none:
                    # without a head it goes back, once
                    stuck[popped] = True
                    behind[popped], queued[popped] = b, first[popped] + second[b]
                    b = popped
            elif kind == LEFT:
                popped, s = s, under[s]
                if right[heads[popped]] == popped:
                    right[heads[popped]] = older[popped]
                heads[popped], clauses[popped] = b, clause[name]
                left[b], stuck[b] = popped, False
            elif kind == RIGHT:
                heads[b], clauses[b] = s, clause[name]
                older[b], right[s] = right[s], b
                stacked[b] = top[b] + below[s] + third[under[s]]
                under[b], s, b = s, b, after
            else:
                begins[after] = True
        return Parse([i if head == none else head for i, head in enumerate(heads[:tokens])], clauses)
