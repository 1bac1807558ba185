"""φ(x): the 24 features of SPEC 2.1, in order, for one query or for many.

lexical     f1-f8    `lexical`
structural  f9-f14   `structural`, `syntax`
semantic    f15-f24  `semantic`, `domain`
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from odar.difficulty import lexical, semantic, structural
from odar.difficulty.domain import DOMAINS, DomainClassifier, default_classifier
from odar.difficulty.syntax import TreeAnalyser, Syntax, SyntaxAnalyser
from odar.difficulty.text import clean, mask_latex, terms
from odar.types import Query

FEATURES = (
    "char_length", "word_count", "token_count", "avg_word_length", "max_word_length", "readability",
    "has_digit", "has_math_symbol",
    "sentence_count", "clause_count", "question_marks", "has_image", "parse_depth", "logical_connectives",
    "tfidf_math", "tfidf_code", "tfidf_logic", "difficulty_density", "is_multiple_choice", "is_open_ended",
    "is_proof", "domain_math", "domain_code", "domain_reasoning",
)  # fmt: skip
"""The names of f1-f24."""

GROUPS = {"lexical": slice(0, 8), "structural": slice(8, 14), "semantic": slice(14, 24)}
"""Feature groups for ablations (SPEC 2.8): 8, 6 and 10."""

_MATH, _CODE, _LOGIC = (DOMAINS.index(d) for d in ("mathematics", "coding", "logic"))


@dataclass(frozen=True, slots=True)
class FeatureExtractor:
    """Computes φ(x) with a choice of syntax analyser and domain classifier.

    >>> x = FeatureExtractor().phi(Query("Is Paris the capital of France?"))
    >>> x.shape, dict(zip(FEATURES, x.tolist()))["word_count"]
    ((24,), 6.0)
    """

    syntax: SyntaxAnalyser = field(default_factory=TreeAnalyser)
    classifier: DomainClassifier | None = None
    """None: the shipped one, read on first use."""

    def phi(self, query: Query) -> NDArray[np.float64]:
        """The 24 features of one query. Any text will do; all values are finite."""
        row: NDArray[np.float64] = self.phi_batch([query])[0]
        return row

    def phi_batch(self, queries: Iterable[Query]) -> NDArray[np.float64]:
        """(n, 24), row by row: a query's features never depend on its neighbours."""
        cleaned = [Query(clean(q.text), q.images) for q in queries]
        masked = [mask_latex(q.text) for q in cleaned]
        parses = self.syntax.analyse(masked)
        rows = [self._row(q, m, p) for q, m, p in zip(cleaned, masked, parses, strict=True)]
        return np.array(rows) if rows else np.zeros((0, len(FEATURES)))

    def _row(self, query: Query, masked: str, parse: Syntax) -> list[float]:
        words = query.text.split()
        return [
            *lexical_features(query.text, masked, words),
            *structural_features(query, parse),
            *semantic_features(query, len(words), self.classifier or default_classifier()),
        ]


def lexical_features(text: str, masked: str, words: list[str]) -> list[float]:
    """f1-f8; `masked` is the text without its LaTeX."""
    return [
        lexical.char_length(text),
        lexical.word_count(words),
        lexical.token_count(text),
        lexical.avg_word_length(words),
        lexical.max_word_length(words),
        lexical.readability(masked),
        lexical.has_digit(text),
        lexical.has_math_symbol(text),
    ]


def structural_features(query: Query, parse: Syntax) -> list[float]:
    """f9-f14."""
    return [
        parse.sentences,
        parse.clauses,
        structural.question_marks(query.text),
        structural.has_image(query),
        parse.depth,
        structural.logical_connectives(query.text),
    ]


def semantic_features(query: Query, words: int, classifier: DomainClassifier) -> list[float]:
    """f15-f24."""
    text, vocabulary = query.text, semantic.vocabularies()
    known = semantic.field_terms()
    counts = semantic.count_terms([term for term in terms(text) if term in known])
    choice = semantic.is_multiple_choice(text)
    domain = classifier.probabilities(query)
    return [
        semantic.tfidf(counts, vocabulary["math"]),
        semantic.tfidf(counts, vocabulary["code"]),
        semantic.tfidf(counts, vocabulary["logic"]),
        semantic.difficulty_density(text, words),
        choice,
        semantic.is_open_ended(text, choice),
        semantic.is_proof(text),
        float(domain[_MATH]),
        float(domain[_CODE]),
        float(domain[_LOGIC]),
    ]


def phi(query: Query) -> NDArray[np.float64]:
    """φ(x) of one query, shape (24,), by the shipped parser and classifier."""
    return FeatureExtractor().phi(query)


def phi_batch(queries: Iterable[Query]) -> NDArray[np.float64]:
    """φ(x) of many queries, shape (n, 24); the same values as `phi`, faster."""
    return FeatureExtractor().phi_batch(queries)
