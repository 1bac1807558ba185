"""φ(x): the 24 features of SPEC 2.1, in order, for one query or for many.

lexical     f1-f8    lengths, readability, digits and symbols
structural  f9-f14   f9, f10 and f13 need the dependency parse (`parser`), the others do not
semantic    f15-f24  vocabularies of domains, markers of difficulty, the type of question, and `domain`
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odar.difficulty.domain import DOMAINS, shipped_classifier
from odar.difficulty.parser import parse_features
from odar.difficulty.text import (
    DATA,
    MAX_WORD_LENGTH,
    READ_LIMIT,
    cached_by_word,
    clean,
    count_syllables,
    mask_latex,
    terms,
    word_lengths,
)
from odar.question import core_question
from odar.types import Query

_MATH_SYMBOL = re.compile("[+×÷=≠<>≤≥∑∏∫∂∇∞−]")
"""The set M of the paper, with the minus sign U+2212 and without the ASCII hyphen."""
# A hyphen next to two or more letters belongs to a word ("2n-gon", "10-year", "pre-") and is no minus.
_MINUS = re.compile(r"(?<![^\W\d_]{2})-(?![^\W\d_]{2})")
_DIGIT = re.compile(r"\d")
# Sentences as in textstat (the tests compare).
_SENTENCE = re.compile(r"\b[^.!?]+[.!?]*")
_begins_with_three_words = re.compile(r"\w\S*+\s\W*\w\S*+\s\W*\w").match
_RANKS = 100_256
"""Number of tokens of cl100k_base. The file has their lengths, one byte each, then the tokens by rank."""
_SPLIT = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
"""Pieces of a text within which cl100k_base merges bytes."""
FIELDS = ("math", "code", "logic")
"""Domains with a vocabulary, in the order of f15-f17."""
_OPTION = re.compile(r"(?:^|[\s(])\(?([A-J])[).:]\s", re.MULTILINE)
_OPTIONS_HEADING = re.compile(r"^[ \t]*(?:options|choices)[ \t]*:", re.IGNORECASE | re.MULTILINE)
_INTERROGATIVE = re.compile(
    r"\W*(?:q(?:uestion)?\s*:\s*)?(?:what|who|whom|whose|which|when|where|why|how)\b", re.IGNORECASE
)
# The beginning of a request, as opposed to a mention: the verb opens a clause or follows a word such as "please".
_REQUEST = (
    r"(?:^|[.;:!?,)]|\b(?:please|and|then|to|you|must|should|us|now|formally|rigorously|carefully|also|can|let's)\b)"
    r"(?:[^\S\n]|[\"'*(])*+(?:(?:formally|rigorously|carefully|now|also)\s+)?"
)
_PROOF = re.compile(
    rf"{_REQUEST}(?:(?:dis)?prove|derive|deduce|(?:show|demonstrate|establish|verify)\s+(?:that|why|how))\b"
    r"|\b(?:give|write|provide|construct|find|present|sketch|supply|with|need|want|complete)\s++"
    r"(?:me\s++)?(?:a|an|the|full|your)?\s*+(?:\w++\s++){0,2}?(?:proof|derivation)\b",
    re.IGNORECASE | re.MULTILINE,
)
_PROOF_STEMS = ("prove", "deriv", "deduce", "show", "demonstrate", "establish", "verify", "proof")
FEATURES = (
    "char_length", "word_count", "token_count", "avg_word_length", "max_word_length", "readability",
    "has_digit", "has_math_symbol",
    "sentence_count", "clause_count", "question_marks", "has_image", "parse_depth", "logical_connectives",
    "tfidf_math", "tfidf_code", "tfidf_logic", "difficulty_density", "is_multiple_choice", "is_open_ended",
    "is_proof", "domain_math", "domain_code", "domain_reasoning",
)  # fmt: skip
"""Names of f1-f24."""
GROUPS = {"lexical": slice(0, 8), "structural": slice(8, 14), "semantic": slice(14, 24)}
"""Feature groups for ablations (SPEC 2.8): 8, 6 and 10."""
PARSED = tuple(FEATURES.index(name) for name in ("sentence_count", "clause_count", "parse_depth"))
"""Indices of the features that need the dependency parse, which takes four times as long as all the others."""
_CONNECTIVE = re.compile(
    r"\b(?:if|then|therefore|hence|thus|because|since|implies|iff|for\s+all|there\s+exists|such\s+that)\b"
)
"""The set L of the paper."""
_MATH, _CODE, _LOGIC = (DOMAINS.index(d) for d in ("mathematics", "coding", "logic"))


def token_count(text: str) -> float:
    """f3: number of cl100k_base tokens."""
    return float(len(_bpe().encode_ordinary(text)))


_COMMON_RANK = 200
"""Rank below which tokens are letters, and words such as "the"."""


@cached_by_word
def word_rarity(word: str) -> float:
    """The rarity of a word, from 0.05 ("the") to 1, by the rank of its cl100k_base token.

    It approximates the inverse document frequency in a large corpus. Words of several tokens have rarity 1.

    >>> word_rarity("the") < word_rarity("water") < word_rarity("photosynthesis")
    True
    """
    if len(word) > MAX_WORD_LENGTH:
        return 1.0
    tokens = _bpe().encode_ordinary(f" {clean(word)}")
    rank = tokens[0] if len(tokens) == 1 else _RANKS
    return max(0.05, math.log((2 + rank) / _COMMON_RANK) / math.log((2 + _RANKS) / _COMMON_RANK))


def readability(masked: str) -> float:
    """f6: Flesch-Kincaid grade of the text with LaTeX masked, clamped to [0, 20].

    Formula, words, sentences and syllables are those of textstat, which is not used itself because its English
    syllable counter downloads a dictionary on first use.

    >>> round(readability("Photosynthesis requires considerable illumination."), 1), readability("Go on.")
    (20.0, 0.0)
    """
    counts = list(map(count_syllables, masked.split()))
    words = len(counts) - counts.count(0)
    if not words:
        return 0.0
    # textstat does not count sentences of fewer than three words
    sentences = sum(_begins_with_three_words(piece) is not None for piece in _SENTENCE.findall(masked)) or 1
    grade = 0.39 * words / sentences + 11.8 * sum(counts) / words - 15.59
    return min(20.0, max(0.0, grade))


def has_math_symbol(text: str) -> float:
    """f8: whether a mathematical symbol or LaTeX appears; a hyphen in a word is not a minus sign.

    >>> has_math_symbol("a well-known 10-year plan"), has_math_symbol("x-1"), has_math_symbol("a ≤ b")
    (0.0, 1.0, 1.0)
    """
    return float(
        bool(_MATH_SYMBOL.search(text) or ("-" in text and _MINUS.search(text)) or mask_latex(text) != text)
    )


@cache
def _bpe() -> Any:
    """The cl100k_base tokenizer with ranks from the package; tiktoken's loader would download them.

    `tiktoken.Encoding` would keep the ranks a second time, as a dictionary of 13 MB.
    """
    from tiktoken._tiktoken import CoreBPE  # type: ignore[import-not-found]  # compiled, without types

    data = zlib.decompress(DATA.joinpath("cl100k.zlib").read_bytes())
    ends = list(accumulate(data[:_RANKS], initial=_RANKS))
    ranks = {data[start:end]: rank for rank, (start, end) in enumerate(pairwise(ends))}
    return CoreBPE(ranks, {}, _SPLIT)


def tfidf(counts: Mapping[str, int], vocabulary: Mapping[str, float]) -> float:
    """f15-f17: the sum of (1 + ln tf)·idf over the terms of the domain's vocabulary.

    >>> tfidf({"integral": 1, "the": 3}, {"integral": 5.0})
    5.0
    """
    return sum((1.0 + math.log(tf)) * vocabulary[term] for term, tf in counts.items() if term in vocabulary)


def difficulty_density(text: str) -> float:
    """f18: number of the 47 markers H in the query, divided by its words.

    >>> difficulty_density("Prove Fermat's last theorem."), difficulty_density("Whose theorem is it?")
    (0.25, 0.0)
    """
    lower = text.lower()
    # `in` first: most queries have no marker, and the pattern for a whole word takes thirty times as long
    patterns = [pattern for marker, pattern in markers().items() if marker in lower]
    count = sum(pattern.search(lower) is not None for pattern in patterns) if patterns else 0
    return count / len(text.split()) if count else 0.0


def is_multiple_choice(text: str) -> float:
    """f19: whether options are enumerated: "(A) … (B) …", "A. … B. …", or under a heading "Options:".

    >>> is_multiple_choice("Pick one: (A) red (B) blue"), is_multiple_choice("Plan A) is good")
    (1.0, 0.0)
    """
    if "A" in text and "B" in text and {"A", "B"} <= set(_OPTION.findall(text)):
        return 1.0
    return float(":" in text and _OPTIONS_HEADING.search(text) is not None)


def is_proof(text: str) -> float:
    """f21: whether the query asks for a proof or derivation; a mention does not count.

    >>> is_proof("Prove that 2 is prime."), is_proof("Who proved the four colour theorem?")
    (1.0, 0.0)
    """
    lower = text.lower()
    return float(any(stem in lower for stem in _PROOF_STEMS) and _PROOF.search(text) is not None)


@cache
def vocabularies() -> dict[str, dict[str, float]]:
    """The idf of each term of each of `FIELDS`, as `scripts/training/build_vocabularies.py` wrote them."""
    raw = json.loads(DATA.joinpath("vocabularies.json").read_text("utf-8"))["vocabularies"]
    return {field: dict(raw[field]) for field in FIELDS}


@cache
def markers() -> dict[str, re.Pattern[str]]:
    """The 47 difficulty markers H, with the pattern of each as a whole word."""
    lines = DATA.joinpath("markers.txt").read_text("utf-8").splitlines()
    return {line: re.compile(rf"\b{re.escape(line)}\b") for line in lines if line and not line.startswith("#")}


def phi_batch(queries: Iterable[Query]) -> NDArray[np.float64]:
    """φ(x) of many queries, shape (n, 24); the features of a query do not depend on the others."""
    return np.array([phi(query) for query in queries]).reshape(-1, len(FEATURES))


def phi(query: Query, *, parse: bool = True) -> list[float]:
    """φ(x) of one query; finite for any text, except that without `parse` the features `PARSED` are NaN."""
    core = core_question(query)
    text = clean(core.text[:READ_LIMIT])
    sentences, clauses, depth = parse_features(mask_latex(text)) if parse else (math.nan, math.nan, math.nan)
    choice = float(bool(core.options)) or is_multiple_choice(text)
    return [
        *lexical_features(core.text, text),
        sentences,
        clauses,
        float(text.count("?")),
        float(bool(query.images)),
        depth,
        logical_connectives(text),
        *semantic_features(Query(text, query.images), choice),
    ]


def lexical_features(whole: str, text: str) -> list[float]:
    """f1-f8. Lengths are those of the whole text; `text` is the part that is read.

    If that is not the whole text, the token count is scaled to its length.
    """
    sizes = word_lengths(whole)
    tokens = token_count(text)
    if len(text) < len(whole):
        tokens = float(round(tokens * len(whole) / len(text)))
    return [
        float(len(whole)),
        float(len(sizes)),
        tokens,
        sum(sizes) / len(sizes) if sizes else 0.0,
        float(max(sizes, default=0)),
        readability(mask_latex(text)),
        float(_DIGIT.search(text) is not None),
        has_math_symbol(text),
    ]


def logical_connectives(text: str) -> float:
    """f14: number of logical connectives.

    >>> logical_connectives("If n is even then, FOR ALL k, such that sincere thieves...")
    4.0
    """
    return float(sum(1 for _ in _CONNECTIVE.finditer(text.lower())))


def semantic_features(query: Query, choice: float) -> list[float]:
    """f15-f24; `choice` is f19."""
    text = query.text
    vocabulary = vocabularies()
    counts = Counter(terms(text))
    domain: list[float] = shipped_classifier().probabilities(query).tolist()
    return [
        *(tfidf(counts, vocabulary[field]) for field in FIELDS),
        difficulty_density(text),
        choice,
        float(not choice and _INTERROGATIVE.match(text) is not None),
        is_proof(text),
        domain[_MATH],
        domain[_CODE],
        domain[_LOGIC],
    ]
