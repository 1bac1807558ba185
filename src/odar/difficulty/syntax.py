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
from typing import Any, NamedTuple, Protocol

import numpy as np

from odar.difficulty.parser import Arc, GreedyParser
from odar.difficulty.tok2vec import TokenVectors

PARSE_LIMIT = 5_000
"""Characters that are parsed, about 1,000 tokens: an event loop must not wait for the parse of a book.

The estimator clips the three features anyway, to what 99.5% of its training texts have (47 sentences, depth 10)."""

BATCH = 32

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
        found: list[Syntax] = []
        for start in range(0, len(texts), BATCH):
            chunk = [_LONG.sub(r"\g<0> ", t[:PARSE_LIMIT]) for t in texts[start : start + BATCH]]
            docs = {i: _document(t) for i, t in enumerate(chunk) if t and not t.isspace()}
            parses = dict(zip(docs, _parse(list(docs.values())), strict=True))
            found += [_measure(len(docs[i]), parses[i]) if i in docs else NOTHING for i in range(len(chunk))]
        return found


def tree_depth(heads: Sequence[int]) -> int:
    """Nodes on the longest path from a root; a root is its own head.

    >>> tree_depth([1, 1, 1]), tree_depth([0, 0, 1]), tree_depth([])
    (2, 3, 0)
    """
    above = np.asarray(heads, np.intp)
    depth = np.where(above == np.arange(len(above)), 0, 1)
    # pointers double: after k rounds each node knows its way up over 2^k arcs. No tree needs more rounds than this.
    for _ in range(len(above).bit_length()):
        further = depth[above]
        if not further.any():
            break
        depth = depth + further
        above = above[above]
    return int(depth.max()) + 1 if len(above) else 0


def _document(text: str) -> Any:
    doc = _pipeline().make_doc(text)
    if "\n" in text:
        from spacy.attrs import SENT_START

        # a line break ends a sentence; the treebank, made of running text, could not teach that
        starts = np.zeros((len(doc), 1), np.uint64)
        starts[1:, 0] = ["\n" in token.text for token in doc[:-1]]
        doc.from_array([SENT_START], starts)
    return doc


def _parse(docs: list[Any]) -> list[list[Arc]]:
    return _parser()(docs, [_vectors()(doc) for doc in docs]) if docs else []


def _measure(tokens: int, arcs: list[Arc]) -> Syntax:
    # spaCy's decoder may leave an arc behind that it has replaced: the last one counts
    parents = {arc["child"]: arc for arc in arcs}
    heads = [parents[i]["head"] if i in parents else i for i in range(tokens)]
    clause = _pipeline().vocab.strings["clause"]
    clauses = sum(arc["label"] == clause for arc in parents.values())
    return Syntax(float(tokens - len(parents)), float(clauses), float(tree_depth(heads)))


@cache
def _pipeline() -> Any:
    import spacy

    with resources.as_file(resources.files("odar.difficulty").joinpath("data", "parser")) as path:
        return spacy.load(path)


@cache
def _vectors() -> TokenVectors:
    return TokenVectors(_pipeline().get_pipe("tok2vec"))


@cache
def _parser() -> GreedyParser:
    return GreedyParser(_pipeline().get_pipe("parser"))
