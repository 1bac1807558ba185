"""Sentences, clauses and depth (f9, f10, f13) from a dependency parse (SPEC 2.4).

The parser was trained with spaCy by `scripts/training/train_parser.py` on UD English EWT (CC BY-SA 4.0, see
data/parser.ATTRIBUTION.txt). It has two relations: "clause" for arcs that head a subordinate clause (advcl, acl,
acl:relcl, ccomp, csubj and their subtypes), "dep" for all others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from operator import eq
from typing import Any

import numpy as np

from odar.difficulty.parser import ChunkTable, GreedyParser, Parse, TokenVectors, Weights
from odar.difficulty.text import DATA
from odar.difficulty.tokenizer import Tokenizer
from odar.formats import check_format

PARSE_LIMIT = 5_000
"""Characters that are parsed, about 1,000 tokens, because the event loop waits for the parse.

The estimator clips the three features to the values of 99.5% of its training texts (47 sentences, depth 10)."""
_LONG_WORD = re.compile(r"\S{60}(?=\S)")
"""The beginning of a word that is cut: splitting off thousands of prefixes would take quadratic time."""


def analyse(text: str) -> tuple[float, float, float]:
    """Parse a text whose LaTeX is masked, and return f9, f10 and f13: sentences, clauses and depth."""
    text = _LONG_WORD.sub(r"\g<0> ", text[:PARSE_LIMIT])
    if not text or text.isspace():
        return 0.0, 0.0, 0.0
    heads, clauses = shipped_parser()(text)
    roots = sum(map(eq, heads, range(len(heads))))
    return float(roots), float(sum(clauses)), float(tree_depth(heads))


def tree_depth(heads: Sequence[int]) -> int:
    """Return the number of nodes on the longest path from a root; a root is its own head."""
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


class Parser:
    """The shipped parser: tokens, vectors, trees."""

    def __init__(self, rules: Mapping[str, Any], arrays: Weights) -> None:
        self.vectors = TokenVectors(arrays)
        self.chunks = ChunkTable(Tokenizer(rules), self.vectors)
        self._decode = GreedyParser(arrays)

    def __call__(self, text: str) -> Parse:
        """Return the trees of a text. A line break always ends a sentence; the training texts have none."""
        rows, line_starts = self.chunks(text)
        return self._decode(self.vectors(rows), line_starts)


@cache
def shipped_parser() -> Parser:
    """Return the parser that comes with ODAR; loaded once."""
    remedy = "make it again with scripts/training/train_parser.py"
    rules = json.loads(DATA.joinpath("tokenizer.json").read_text("utf-8"))
    check_format(rules["format"], "odar-tokenizer/1", "tokenizer.json", remedy)
    with DATA.joinpath("parser.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        weights = {name: arrays[name] for name in arrays}
    check_format(str(weights["format"]), "odar-parser/1", "parser.npz", remedy)
    return Parser(rules, weights)
