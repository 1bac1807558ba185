"""φ(x): the 24 features of SPEC 2.1, in order, for one query or for many.

lexical     f1-f8    `lexical`
structural  f9-f14   here; f9, f10 and f13 need the dependency parse (`syntax`), the others do not
semantic    f15-f24  `semantic`, `domain`
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from odar.difficulty import lexical, semantic
from odar.difficulty.domain import DOMAINS, DomainClassifier, default_classifier
from odar.difficulty.syntax import SyntaxAnalyser, TreeAnalyser
from odar.difficulty.text import READ_LIMIT, clean, lengths, mask_latex, terms
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

PARSED = tuple(FEATURES.index(name) for name in ("sentence_count", "clause_count", "parse_depth"))
"""Where the features are that need the dependency parse, which takes four times as long as all the others."""

CONNECTIVES = (
    "if", "then", "therefore", "hence", "thus", "because", "since", "implies", "iff", "for all",
    "there exists", "such that",
)  # fmt: skip
"""The set L of the paper."""

_CONNECTIVE = re.compile(r"\b(?:" + "|".join(CONNECTIVES).replace(" ", r"\s+") + r")\b")
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
        return np.array(self.parse(query, self.unparsed(query)))

    def phi_batch(self, queries: Iterable[Query]) -> NDArray[np.float64]:
        """(n, 24), row by row: a query's features never depend on its neighbours."""
        rows = [self.parse(query, self.unparsed(query)) for query in queries]
        return np.array(rows) if rows else np.zeros((0, len(FEATURES)))

    def unparsed(self, query: Query) -> list[float]:
        """The 21 features that need no parse, in their places; NaN in the other three."""
        text = clean(query.text[:READ_LIMIT])
        return [
            *lexical_features(query.text, text),
            *structural_features(query, text),
            *semantic_features(query, text, self.classifier or default_classifier()),
        ]

    def parse(self, query: Query, features: list[float]) -> list[float]:
        """The features of `unparsed` with f9, f10 and f13 filled in."""
        (found,) = self.syntax.analyse([mask_latex(clean(query.text[:READ_LIMIT]))])
        complete = features.copy()
        for place, value in zip(PARSED, found, strict=True):
            complete[place] = value
        return complete


def lexical_features(whole: str, text: str) -> list[float]:
    """f1-f8. Lengths are those of the whole text; `text` is what is read of it.

    The token count of a text that is read in part is scaled to its length; it is exact for all others.
    """
    count, tokens = lengths(whole), lexical.token_count(text)
    if len(text) < len(whole):
        tokens = float(round(tokens * len(whole) / len(text)))
    return [
        float(count.characters),
        float(count.words),
        tokens,
        count.in_words / count.words if count.words else 0.0,
        float(count.longest),
        lexical.readability(mask_latex(text)),
        lexical.has_digit(text),
        lexical.has_math_symbol(text),
    ]


def structural_features(query: Query, text: str) -> list[float]:
    """f9-f14, with NaN for the three of the parse."""
    return [
        math.nan,
        math.nan,
        float(text.count("?")),
        float(bool(query.images)),
        math.nan,
        logical_connectives(text),
    ]


def logical_connectives(text: str) -> float:
    """f14: logical connectives, whole words, any case.

    >>> logical_connectives("If n is even then, FOR ALL k, such that sincere thieves...")
    4.0
    """
    return float(sum(1 for _ in _CONNECTIVE.finditer(text.lower())))


def semantic_features(query: Query, text: str, classifier: DomainClassifier) -> list[float]:
    """f15-f24."""
    vocabulary, known = semantic.vocabularies(), semantic.field_terms()
    counts = semantic.count_terms([term for term in terms(text) if term in known])
    choice = semantic.is_multiple_choice(text)
    domain = classifier.probabilities(Query(text, query.images))
    return [
        semantic.tfidf(counts, vocabulary["math"]),
        semantic.tfidf(counts, vocabulary["code"]),
        semantic.tfidf(counts, vocabulary["logic"]),
        semantic.difficulty_density(text),
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
    """φ(x) of many queries, shape (n, 24); the same values as `phi`, row by row."""
    return FeatureExtractor().phi_batch(queries)
