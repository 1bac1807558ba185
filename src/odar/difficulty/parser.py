"""Sentences, clauses and depth (f9, f10, f13) from a dependency parse (SPEC 2.4); the trees equal spaCy's.

The parser was trained with spaCy by `scripts/training/train_parser.py` on UD English EWT (CC BY-SA 4.0, see
data/parser.ATTRIBUTION.txt). It has two relations: "clause" for arcs that head a subordinate clause (advcl, acl,
acl:relcl, ccomp, csubj and their subtypes), "dep" for all others. It is a greedy arc-eager parser.

A parser state has eight slots (the first token of the queue, the top of the stack, their children, …). The
contribution of a token in a slot to the score of each transition is computed in advance, so a step is a sum of
eight rows. A row is one big integer with all scores side by side, 32 bits each, so one addition adds them all. The
last three bits of a score are the number of its transition, so the highest score also identifies the transition.

spaCy's compiled decoder releases and takes the GIL about twenty times per step, which is most of its time.

Token vectors equal those of spaCy's tok2vec, ten times as fast for one query. The embedding (hashed word
attributes, mixed by one maxout) does not depend on context, and a convolution over three tokens is a sum of three
products, one for each position in the window. So the embedding of a word form and its three products in the first
convolution are computed once and kept as one row of a table; a text is then a gather and a sum. Later convolutions
multiply first and shift after.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate, pairwise
from operator import add, eq
from struct import Struct
from threading import Lock
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from odar.difficulty.text import DATA
from odar.difficulty.tokenizer import Tokenizer, table_rows

Vectors = NDArray[np.float32]
Weights = Mapping[str, NDArray[Any]]
"""The arrays of data/parser.npz."""
PARSE_LIMIT = 5_000
"""Characters that are parsed, about 1,000 tokens, because the event loop waits for the parse.

The estimator clips the three features to the values of 99.5% of its training texts (47 sentences, depth 10)."""
_LONG_WORD = re.compile(r"\S{60}(?=\S)")
"""The beginning of a word that is cut: splitting off thousands of prefixes would take quadratic time."""
TABLE_LIMIT = 3_000
"""Number of chunks (about 6 MB) at which the rows that are kept are cleared."""
_BLOCK = 16
# One blank after a word belongs to it; every other run of white space is a token.
_CHUNK = re.compile(r"(?<=\S) |(\S+|\s+)")
SLOTS = 8
SHIFT, REDUCE, LEFT, RIGHT, BREAK = range(5)
_KINDS = {"S": SHIFT, "D": REDUCE, "L": LEFT, "R": RIGHT, "B": BREAK}
_UNIT = 1 << 20
"""Scores are integers in millionths, about the resolution of float32."""
_OFFSET = 1 << 25
"""Added to each score, so that none is negative; the sum of eight, with the transition's number, is below 2^32.

A slot can then add ±32 to a score; the largest of the trained parser are about 13."""
_NUMBER_BITS = 3
_NUMBER = (1 << _NUMBER_BITS) - 1


def parse_features(text: str) -> tuple[float, float, float]:
    """f9, f10 and f13 of a text whose LaTeX is masked: sentences, clauses and depth."""
    text = _LONG_WORD.sub(r"\g<0> ", text[:PARSE_LIMIT])
    if not text or text.isspace():
        return 0.0, 0.0, 0.0
    heads, clauses = shipped_parser()(text)
    roots = sum(map(eq, heads, range(len(heads))))
    return float(roots), float(sum(clauses)), float(tree_depth(heads))


def tree_depth(heads: Sequence[int]) -> int:
    """The number of nodes on the longest path from a root; a root is its own head."""
    depths = [0] * len(heads)
    for node in range(len(heads)):
        unmeasured = []
        while not depths[node]:
            unmeasured.append(node)
            if heads[node] == node:
                break
            node = heads[node]
        depth = depths[node]
        for descendant in reversed(unmeasured):
            depth = depths[descendant] = depth + 1
    return max(depths, default=0)


def matmul_in_blocks(x: Vectors, weights: Vectors) -> Vectors:
    """x @ weights, computed on one thread.

    A block of 16 rows is too small for BLAS to use threads, which on a busy machine took ten times as long. This is
    two to three times as fast as thinc's product.
    """
    rows, inner = x.shape
    blocks = -(-rows // _BLOCK)
    padded = np.zeros((blocks, _BLOCK, inner), np.float32)
    padded.reshape(-1, inner)[:rows] = x
    return cast(Vectors, np.matmul(padded, weights).reshape(-1, weights.shape[1])[:rows])


class _Maxout:
    """max over pieces of W·x + b, then layer normalisation."""

    def __init__(self, arrays: Weights, layer: int) -> None:
        weights = arrays[f"maxout{layer}_W"]
        bias = arrays[f"maxout{layer}_b"]
        self.width, pieces, _ = weights.shape
        # the pieces side by side, so that the maximum is taken over contiguous blocks
        self.weights = np.concatenate([weights[:, p].T for p in range(pieces)], axis=1)
        self.bias = np.concatenate([bias[:, p] for p in range(pieces)])
        self.gain = arrays[f"norm{layer}_G"]
        self.shift = arrays[f"norm{layer}_b"]
        self._share = np.float32(1 / self.width)

    def activate(self, y: Vectors) -> Vectors:
        """The output for y = W·x + b, which is overwritten."""
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
        self.window = np.ascontiguousarray(np.concatenate(np.split(self.weights, 3), axis=1))
        self._size = self.weights.shape[1]

    def products(self, y: Vectors) -> Vectors:
        """The contributions of each row x to the rows after it, at it and before it, for y = x · window."""
        y[:, self._size : 2 * self._size] += self.bias
        return y

    def combine(self, x: Vectors, products: Vectors) -> Vectors:
        """The convolved rows, without the first and the last, from rows and their products."""
        size = self._size
        y = products[:-2, :size] + products[1:-1, size : 2 * size]
        y += products[2:, 2 * size :]
        y = self.activate(y)
        y += x[1:-1]
        return y


class TokenVectors:
    """Vectors of tokens, with the weights that `scripts/training/train_parser.py` exported."""

    def __init__(self, arrays: Weights) -> None:
        self._mix = _Maxout(arrays, 0)
        layers = sum(name.startswith("maxout") for name in arrays) // 2
        self._first, *self._later = [_Convolution(arrays, layer) for layer in range(1, layers)]
        self._seeds = arrays["seeds"].tolist()
        tables = [arrays[f"table{i}"] for i in range(len(self._seeds))]
        # a sum of table rows is mixed by a matrix: the rows are mixed in advance
        weights = np.split(self._mix.weights, len(tables))
        mixed = [matmul_in_blocks(table, part) for table, part in zip(tables, weights, strict=True)]
        # in one array, so that one `take` finds the rows of all attributes; each has four rows in its table
        self._mixed = np.concatenate(mixed)
        sizes = [len(table) for table in mixed]
        offsets = np.cumsum([0, *sizes[:-1]], dtype=np.uint32)
        self._sizes = np.array(sizes, np.uint32)[:, None, None]
        self._offsets = offsets[:, None, None]
        # as spaCy, pads with one zero row for each layer
        zero = self._rows(np.zeros((1, self._mix.width), np.float32)).tobytes()
        self._edge = zero * (1 + len(self._later))
        self.row_bytes = len(zero)

    def embed(self, attributes: NDArray[np.uint64]) -> bytes:
        """A row of `row_bytes` for each word form, given its norm, prefix, suffix and shape."""
        hashes = np.array([table_rows(*column) for column in zip(attributes.T.copy(), self._seeds, strict=True)])
        hashes %= self._sizes
        hashes += self._offsets
        total = np.add.reduce(self._mixed.take(hashes, axis=0), axis=(0, 2))
        total += self._mix.bias
        return self._rows(self._mix.activate(total)).tobytes()

    def __call__(self, rows: Iterable[bytes]) -> Vectors:
        """The vectors (tokens, width) of the tokens with these rows, as spaCy's `tok2vec.predict`."""
        # joined bytes are a matrix without a copy; to stack many small rows takes numpy five times as long
        table = np.frombuffer(b"".join([self._edge, *rows, self._edge]), np.float32)
        table = table.reshape(-1, self.row_bytes // 4)
        width = self._mix.width
        x = self._first.combine(table[:, :width], table[:, width:])
        for layer in self._later:
            x = layer.combine(x, layer.products(matmul_in_blocks(x, layer.window)))
        return x

    def _rows(self, embedded: Vectors) -> Vectors:
        """The embedding of each form, followed by its products in the first convolution.

        By row, because the last digits of a BLAS product depend on the position of a row in the matrix.
        """
        by_row = np.matmul(embedded[:, None], self._first.window)[:, 0]
        return np.concatenate([embedded, self._first.products(by_row)], axis=1)


def split_chunks(text: str) -> list[str]:
    """Words and runs of white space; one blank after a word belongs to it."""
    words = text.split()
    if " ".join(words) == text:  # true for most questions, and five times as fast
        return words
    return [chunk for chunk in _CHUNK.findall(text) if chunk]


Parse = tuple[list[int], list[bool]]
"""The head of each token, a root being its own head; and whether the arc of each token heads a clause."""


class GreedyParser:
    """Parses token vectors with the weights that `scripts/training/train_parser.py` exported."""

    def __init__(self, arrays: Weights) -> None:
        weights = arrays["state_W"]
        names = arrays["moves"].tolist()
        fits = len(weights) == SLOTS and len(names) <= _NUMBER + 1
        assert fits, "train_parser.py made another architecture than this decoder's"
        # reversed: if two scores are the same, the first transition has the higher number and wins
        moves = names[::-1]
        self._kinds = [_KINDS[move[0]] for move in moves]
        self._clause = [move.endswith("-clause") for move in moves]
        # (slot, transition, piece, input) to columns in the order slot, piece, transition
        flat = weights.transpose(0, 2, 1, 3).reshape(-1, weights.shape[3])
        # two linear layers in a row are one
        self._weights = np.ascontiguousarray((flat @ arrays["linear_W"]).T) * np.float32(_UNIT)
        self._shift = (flat @ arrays["linear_b"]) * np.float32(_UNIT)
        pieces = weights.shape[2]
        lanes = weights.shape[1] * weights.shape[2]
        self._lanes = Struct(f">{lanes}I")
        self._row = np.dtype((np.void, self._lanes.size))
        # numbers and bias are added once per state: in the first slot
        self._offset = np.full(SLOTS * lanes, _OFFSET << _NUMBER_BITS, np.int32)
        self._offset[:lanes] += np.tile(np.arange(len(moves))[::-1], pieces)
        absent = arrays["state_pad"][0].transpose(0, 2, 1).reshape(-1) * np.float32(_UNIT)
        bias = arrays["state_b"].T.reshape(-1) * np.float32(_UNIT)
        self._shift[:lanes] += bias
        absent[:lanes] += bias
        self._absent = self._integers(absent[np.newaxis])

    def __call__(self, vectors: Vectors, starts: Iterable[int] = ()) -> Parse:
        """The parse of one text; `starts` are tokens that begin a sentence."""
        scores = matmul_in_blocks(vectors, self._weights)
        scores += self._shift
        rows = self._integers(scores)
        # the row of an absent token comes last
        slots = [[*rows[slot::SLOTS], absent] for slot, absent in enumerate(self._absent)]
        return self._decode(len(vectors), slots, starts)

    def _integers(self, scores: Vectors) -> list[int]:
        """One integer for each token and slot, with the slots of a token together."""
        limit = np.float32(_OFFSET - 8)
        np.minimum(scores, limit, out=scores)
        np.maximum(scores, -limit, out=scores)
        counted = scores.astype(np.int32)
        counted <<= _NUMBER_BITS
        counted += self._offset
        # big-endian, the default of `int.from_bytes`: the first lane is the highest part of an integer
        return list(map(int.from_bytes, counted.astype(">i4").view(self._row).reshape(-1).tolist()))

    def _decode(self, tokens: int, slots: list[list[int]], starts: Iterable[int]) -> Parse:
        """Apply the best allowed transition until the queue and the stack are empty.

        Both are linked lists: `under` has the next token on the stack, `behind` the next in the queue. The tokens
        under a token do not change while it is on the stack, so the rows of the three on top are added when it is
        pushed (`stacked`), and those of the first two in the queue in advance (`queued`). The number after the last
        token stands for "no token", because an index of -1 is slower.
        """
        first, second, top, below, third, child_of_first, left_of_top, right_of_top = slots
        size = self._lanes.size
        unpack = self._lanes.unpack
        kinds = self._kinds
        none = tokens
        # by token: its head, the token under it, its last child on each side, and the child of its head before it
        heads, under, left, right, older = ([none] * (tokens + 1) for _ in range(5))
        clauses = [False] * tokens
        stuck = [False] * tokens  # it went back to the queue, and cannot be shifted
        begins = [False] * tokens + [True]  # a sentence
        for start in starts:
            begins[min(start, none)] = True
        behind = [*range(1, tokens + 1), none]
        queued = list(map(add, first, second[1:]))
        stacked = [top[none] + below[none] + third[none]] * (tokens + 1)
        s = none  # the top of the stack
        b = 0  # the first token of the queue

        while b != none or s != none:
            if b == none:
                kind = REDUCE
            else:
                after = behind[b]
                total = (
                    queued[b] + stacked[s]
                    + child_of_first[left[b]] + left_of_top[left[s]] + right_of_top[right[s]]
                )  # fmt: skip
                # the maximum over all pieces of the maxout is the score of the best transition
                scores: Sequence[int] = unpack(total.to_bytes(size))
                allowed = False
                while not allowed:
                    number = max(scores) & _NUMBER
                    kind = kinds[number]
                    if kind == SHIFT:
                        allowed = s == none or not (after == none or stuck[b] or begins[b])
                    elif kind == BREAK:
                        allowed = after == b + 1 and not begins[after]
                    else:
                        allowed = s != none and (kind == REDUCE or not begins[b])
                    if not allowed:
                        scores = [score for score in scores if score & _NUMBER != number]
            if kind == SHIFT:
                stacked[b] = top[b] + below[s] + third[under[s]]
                under[b], s, b = s, b, after
            elif kind == REDUCE:
                popped, s = s, under[s]
                if heads[popped] == none and s != none:
                    # a token without a head goes back to the queue, once
                    stuck[popped] = True
                    behind[popped] = b
                    queued[popped] = first[popped] + second[b]
                    b = popped
            elif kind == LEFT:
                popped, s = s, under[s]
                if right[heads[popped]] == popped:
                    right[heads[popped]] = older[popped]
                heads[popped] = b
                clauses[popped] = self._clause[number]
                left[b] = popped
                stuck[b] = False
            elif kind == RIGHT:
                heads[b] = s
                clauses[b] = self._clause[number]
                older[b] = right[s]
                right[s] = b
                stacked[b] = top[b] + below[s] + third[under[s]]
                under[b], s, b = s, b, after
            else:
                begins[after] = True
        return [i if head == none else head for i, head in enumerate(heads[:tokens])], clauses


class Parser:
    """The shipped parser: tokens, vectors, trees.

    The rows of the tokens of each chunk, which is a word with its punctuation or white space, are kept.
    """

    def __init__(self, rules: Mapping[str, Any], arrays: Weights) -> None:
        self.tokenizer = Tokenizer(rules)
        self.vectors = TokenVectors(arrays)
        self._decode = GreedyParser(arrays)
        self._cache: dict[str, bytes] = {}
        self._lock = Lock()

    def __call__(self, text: str) -> Parse:
        """The trees of a text. A line break always ends a sentence; the training texts have none."""
        rows, line_starts = self.rows(text)
        return self._decode(self.vectors(rows), line_starts)

    def rows(self, text: str) -> tuple[list[bytes], list[int]]:
        """The rows of the tokens of each chunk of a text, and the indices of tokens that begin a line."""
        chunks = split_chunks(text)
        cached = self._cache
        known = {chunk: cached[chunk] for chunk in chunks if chunk in cached}
        if missing := [chunk for chunk in dict.fromkeys(chunks) if chunk not in known]:
            new = dict(zip(missing, self._embed(missing), strict=True))
            known |= new
            with self._lock:
                if len(self._cache) + len(new) > TABLE_LIMIT:
                    self._cache = {}
                self._cache.update(new)
        rows = [known[chunk] for chunk in chunks]
        ends = accumulate(len(row) // self.vectors.row_bytes for row in rows)
        return rows, [end for chunk, end in zip(chunks, ends, strict=True) if "\n" in chunk]

    def _embed(self, chunks: Sequence[str]) -> Iterator[bytes]:
        words = list(map(self.tokenizer, chunks))
        attributes = [self.tokenizer.attributes(word) for part in words for word in part]
        rows = self.vectors.embed(np.array(attributes, np.uint64).reshape(-1, 4))
        ends = accumulate((len(part) * self.vectors.row_bytes for part in words), initial=0)
        return (rows[start:end] for start, end in pairwise(ends))


@cache
def shipped_parser() -> Parser:
    rules = json.loads(DATA.joinpath("tokenizer.json").read_text("utf-8"))
    with DATA.joinpath("parser.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return Parser(rules, {name: arrays[name] for name in arrays})
