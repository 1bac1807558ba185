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

from odar.difficulty.tok2vec import TokenVectors

PARSE_LIMIT = 20_000
"""Characters that are parsed; what follows hardly moves a maximum or a count that is clipped anyway."""

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
            docs = {i: _pipeline().make_doc(t) for i, t in enumerate(chunk) if t and not t.isspace()}
            _parse(list(docs.values()))
            found += [_measure(docs[i]) if i in docs else NOTHING for i in range(len(chunk))]
        return found


def tree_depth(heads: Sequence[int]) -> int:
    """Nodes on the longest path from a root; a root is its own head.

    >>> tree_depth([1, 1, 1]), tree_depth([0, 0, 1]), tree_depth([])
    (2, 3, 0)
    """
    depth = [0] * len(heads)
    for start in range(len(heads)):
        path, node = [], start
        while depth[node] == 0 and heads[node] != node:
            path.append(node)
            node = heads[node]
        base = depth[node] = depth[node] or 1
        for step, below in enumerate(reversed(path), start=1):
            depth[below] = base + step
    return max(depth, default=0)


def _parse(docs: list[Any]) -> None:
    if not docs:
        return
    pipeline, vectors = _pipeline(), _vectors()
    for doc in docs:
        doc.tensor = vectors(doc)
        if "\n" in doc.text:
            # a line break ends a sentence; the treebank, made of running text, could not teach that
            for token in doc[1:]:
                if "\n" in doc[token.i - 1].text:
                    token.is_sent_start = True
    parser = pipeline.get_pipe("parser")
    parser.set_annotations(docs, parser.predict(docs))


def _measure(doc: Any) -> Syntax:
    from spacy.attrs import DEP, HEAD

    table = doc.to_array([HEAD, DEP])
    # heads are signed offsets in unsigned cells; relations are 64-bit hashes and must stay unsigned
    heads = (np.arange(len(doc)) + table[:, 0].astype(np.int64)).tolist()
    roots = sum(h == i for i, h in enumerate(heads))
    clauses = int((table[:, 1] == np.uint64(doc.vocab.strings["clause"])).sum())
    return Syntax(float(roots), float(clauses), float(tree_depth(heads)))


@cache
def _pipeline() -> Any:
    import spacy

    with resources.as_file(resources.files("odar.difficulty").joinpath("data", "parser")) as path:
        return spacy.load(path)


@cache
def _vectors() -> TokenVectors:
    return TokenVectors(_pipeline().get_pipe("tok2vec"))
