"""Sentences, clauses and depth (f9, f10, f13) from a dependency parse (SPEC 2.4).

The parser is a spaCy pipeline shipped in the package, trained by `scripts/train_parser.py` on UD English EWT
(CC BY-SA 4.0, see data/parser/ATTRIBUTION.txt). It knows two relations: "clause" for arcs that head a
subordinate clause (advcl, acl, acl:relcl, ccomp, csubj and kin), "dep" for all others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from operator import eq
from typing import Any, NamedTuple, Protocol

from odar.difficulty.chunks import ChunkTable
from odar.difficulty.parser import GreedyParser
from odar.difficulty.tok2vec import TokenVectors

PARSE_LIMIT = 5_000
"""Characters that are parsed, about 1,000 tokens: an event loop must not wait for the parse of a book.

The estimator clips the three features anyway, to what 99.5% of its training texts have (47 sentences, depth 10)."""

# spaCy's tokenizer takes quadratic time on a "word" of a thousand brackets: longer ones are cut.
_LONG = re.compile(r"\S{60}(?=\S)")


class Syntax(NamedTuple):
    """What f9, f10 and f13 need to know of a text."""

    sentences: float
    clauses: float
    depth: float


NOTHING = Syntax(0.0, 0.0, 0.0)
"""A blank text."""


class SyntaxAnalyser(Protocol):
    """Counts sentences and clauses and measures depth, of texts whose LaTeX is masked."""

    def analyse(self, texts: Sequence[str]) -> list[Syntax]:
        """One result per text, whatever the other texts are."""
        ...


class SpacyAnalyser:
    """The shipped parser."""

    def analyse(self, texts: Sequence[str]) -> list[Syntax]:
        """Parse and measure.

        >>> SpacyAnalyser().analyse(["", "Go."])
        [Syntax(sentences=0.0, clauses=0.0, depth=0.0), Syntax(sentences=1.0, clauses=0.0, depth=2.0)]
        """
        return [_analyse(_LONG.sub(r"\g<0> ", text[:PARSE_LIMIT])) for text in texts]


def tree_depth(heads: Sequence[int]) -> int:
    """Nodes on the longest path from a root; a root is its own head.

    >>> tree_depth([1, 1, 1]), tree_depth([0, 0, 1]), tree_depth([])
    (2, 3, 0)
    """
    depths = [0] * len(heads)
    for node in range(len(heads)):
        path = []
        while not depths[node]:
            path.append(node)
            if heads[node] == node:
                break
            node = heads[node]
        depth = depths[node]
        for below in reversed(path):
            depth = depths[below] = depth + 1
    return max(depths, default=0)


def _analyse(text: str) -> Syntax:
    if not text or text.isspace():
        return NOTHING
    rows, line_starts = _chunks()(text)
    # a line break ends a sentence; the treebank, made of running text, could not teach that
    heads, clauses = _parser()(_vectors()(rows), line_starts)
    roots = sum(map(eq, heads, range(len(heads))))
    return Syntax(float(roots), float(sum(clauses)), float(tree_depth(heads)))


@cache
def _pipeline() -> Any:
    import spacy

    with resources.as_file(resources.files("odar.difficulty").joinpath("data", "parser")) as path:
        return spacy.load(path)


@cache
def _vectors() -> TokenVectors:
    return TokenVectors(_pipeline().get_pipe("tok2vec"))


@cache
def _chunks() -> ChunkTable:
    return ChunkTable(_pipeline(), _vectors())


@cache
def _parser() -> GreedyParser:
    return GreedyParser(_pipeline().get_pipe("parser"))
