"""Greedy arc-eager parsing (SPEC 2.4) by the weights of a trained spaCy parser; the same trees as spaCy's.

A state of the parser has eight places (the first of the queue, the top of the stack, their children …); what the
token in each place adds to the score of each transition is known beforehand, so that a step is a sum of eight rows.
Here a row is one big integer that holds all scores side by side, 32 bits each: one addition adds them all.

Why not spaCy's compiled decoder: it gives up the interpreter's lock and takes it back some twenty times a step,
which is most of its time, and in a server with threads an invitation to each of them to go first.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from odar.difficulty.tok2vec import Vectors, product

PLACES = 8
SHIFT, REDUCE, LEFT, RIGHT, BREAK = range(5)
_KINDS = {"S": SHIFT, "D": REDUCE, "L": LEFT, "R": RIGHT, "B": BREAK}

_UNIT = 1 << 20
"""Scores are counted in millionths, about what float32 resolves."""
_ZERO = 1 << 26
"""Added to each score, so that none is negative; the sum of eight stays below 2^30, which Python compares fastest.

A place may then add ±64 to a score; the trained parser's largest are about 13."""


class Parse(NamedTuple):
    """A tree per sentence: each token's head (a root is its own), and whether its arc heads a clause."""

    heads: list[int]
    clauses: list[bool]


class GreedyParser:
    """Parses token vectors by the weights of a trained `parser` pipe without an upper layer."""

    def __init__(self, pipe: Any) -> None:
        model = pipe.model
        lower, linear = model.get_ref("lower"), next(layer for layer in model.walk() if layer.name == "linear")
        weights = lower.get_param("W")
        if model.attrs["has_upper"] or len(weights) != PLACES:
            raise ValueError(f"a parser of {len(weights)} places or with an upper layer: scripts/train_parser.py")
        self._kinds = [_KINDS[name[0]] for name in pipe.move_names]
        self._clause = [name.endswith("-clause") for name in pipe.move_names]
        # (place, transition, piece, input) to columns in the order place, piece, transition
        flat = weights.transpose(0, 2, 1, 3).reshape(-1, weights.shape[3])
        # two linear layers in a row are one
        self._weights = np.ascontiguousarray((flat @ linear.get_param("W")).T) * np.float32(_UNIT)
        self._shift = (flat @ linear.get_param("b")) * np.float32(_UNIT)
        lanes = weights.shape[1] * weights.shape[2]
        self._lanes = Struct(f"<{lanes}I")
        self._rows = Struct(f"{self._lanes.size}s")
        absent = lower.get_param("pad")[0].transpose(0, 2, 1).reshape(PLACES, lanes).copy()
        # every state has the bias once: the first place carries it
        absent[0] += lower.get_param("b").T.reshape(-1)
        self._shift[:lanes] += lower.get_param("b").T.reshape(-1) * np.float32(_UNIT)
        self._absent = self._integers(absent * np.float32(_UNIT))

    def __call__(self, vectors: Vectors, starts: Iterable[int] = ()) -> Parse:
        """The parse of one text; `starts` are tokens known to begin a sentence."""
        rows = self._integers(product(vectors, self._weights) + self._shift)
        # the row of an absent token comes last, where index -1 finds it
        places = [[*rows[place::PLACES], absent] for place, absent in enumerate(self._absent)]
        return self._decode(len(vectors), places, set(starts))

    def _integers(self, scores: Vectors) -> list[int]:
        """One integer for each token and place, the places of a token together."""
        limit = np.float32(_ZERO - 8)
        np.minimum(scores, limit, out=scores)
        np.maximum(scores, -limit, out=scores)
        counted = scores.astype("<i4")
        counted += _ZERO
        whole = int.from_bytes
        return [whole(row, "little") for (row,) in self._rows.iter_unpack(counted.tobytes())]

    def _decode(self, tokens: int, places: list[list[int]], starts: set[int]) -> Parse:
        """Take the best allowed transition until all tokens are off the queue and the stack; -1 is no token."""
        first, second, top, below, third, child_of_first, left_of_top, right_of_top = places
        size, lanes = self._lanes.size, self._lanes.unpack
        kinds, clause, count = self._kinds, self._clause, len(self._kinds)
        heads, clauses, stuck = [-1] * tokens, [False] * tokens, [False] * tokens
        left: list[list[int]] = [[-1] for _ in range(tokens + 1)]
        right: list[list[int]] = [[-1] for _ in range(tokens + 1)]
        stack, queue = [-1, -1, -1], [-1, -1, *range(tokens - 1, -1, -1)]

        while True:
            s, b, after = stack[-1], queue[-1], queue[-2]
            if b < 0:
                if s < 0:
                    break
                move, kind = -1, REDUCE
            else:
                total = (
                    first[b] + second[after] + top[s] + below[stack[-2]] + third[stack[-3]]
                    + child_of_first[left[b][-1]] + left_of_top[left[s][-1]] + right_of_top[right[s][-1]]
                )  # fmt: skip
                scores = lanes(total.to_bytes(size, "little"))
                # the pieces of the maxout lie one after the other: the best score of all is the best transition's
                move = scores.index(max(scores)) % count
                kind = kinds[move]
                arcs = s >= 0 and b not in starts
                allowed = (
                    s < 0 or (arcs and after >= 0 and not stuck[b]), s >= 0, arcs, arcs,
                    after == b + 1 and after not in starts,
                )  # fmt: skip
                if not allowed[kind]:
                    move = max((m for m in range(count) if allowed[kinds[m]]), key=lambda m: max(scores[m::count]))
                    kind = kinds[move]
            if kind == SHIFT:
                stack.append(queue.pop())
            elif kind == REDUCE:
                stack.pop()
                if heads[s] < 0 and stack[-1] >= 0:
                    # without a head it goes back, once
                    stuck[s] = True
                    queue.append(s)
            elif kind == LEFT:
                stack.pop()
                if heads[s] >= 0 and right[heads[s]][-1] == s:
                    right[heads[s]].pop()
                heads[s], clauses[s] = b, clause[move]
                left[b].append(s)
                stuck[b] = False
            elif kind == RIGHT:
                stack.append(queue.pop())
                heads[b], clauses[b] = s, clause[move]
                right[s].append(b)
            else:
                starts.add(after)
        return Parse([i if head < 0 else head for i, head in enumerate(heads)], clauses)
