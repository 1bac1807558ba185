"""Greedy arc-eager parsing (SPEC 2.4) by the weights of a trained spaCy parser; the same trees as spaCy's.

A state of the parser has eight places (the first of the queue, the top of the stack, their children …); what the
token in each place adds to the score of each transition is known beforehand, so that a step is a sum of eight rows.
Here a row is one big integer that holds all scores side by side, 32 bits each: one addition adds them all. The last
three bits of a score name its transition, so that the highest score also says whose it is.

Why not spaCy's compiled decoder: it gives up the interpreter's lock and takes it back some twenty times a step,
which is most of its time, and in a server with threads an invitation to each of them to go first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import add
from struct import Struct
from typing import NamedTuple

import numpy as np

from odar.difficulty.tok2vec import Vectors, Weights, product

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
        """The parse of one text; `starts` are tokens known to begin a sentence."""
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
