"""Semantic features f15-f21 (SPEC 2.1): domain vocabularies, difficulty markers, the type of question."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from importlib import resources

FIELDS = ("math", "code", "logic")
"""The domains that have a vocabulary, in the order of f15-f17."""

_OPTION = re.compile(r"(?:^|[\s(])\(?([A-J])[).:]\s", re.MULTILINE)
_OPTIONS_HEADING = re.compile(r"^[ \t]*(?:options|choices)[ \t]*:", re.IGNORECASE | re.MULTILINE)
_INTERROGATIVE = re.compile(
    r"\W*(?:q(?:uestion)?\s*:\s*)?(?:what|who|whom|whose|which|when|where|why|how)\b", re.IGNORECASE
)
# A request, not a mention: the verb opens a sentence or follows a word that makes it an instruction.
_ASKS = (
    r"(?:^|[.;:!?,)]|\b(?:please|and|then|to|you|must|should|us|now|formally|rigorously|carefully|also|can|let's)\b)"
    r"[\s\"'*(]*(?:(?:formally|rigorously|carefully|now|also)\s+)?"
)
_PROOF = re.compile(
    rf"{_ASKS}(?:(?:dis)?prove|derive|deduce|(?:show|demonstrate|establish|verify)\s+(?:that|why|how))\b"
    r"|\b(?:give|write|provide|construct|find|present|sketch|supply|with|need|want|complete)\s+"
    r"(?:me\s+)?(?:a|an|the|full|your)?\s*(?:\w+\s+){0,2}?(?:proof|derivation)\b",
    re.IGNORECASE | re.MULTILINE,
)

_PROOF_STEMS = ("prove", "deriv", "deduce", "show", "demonstrate", "establish", "verify", "proof")


def tfidf(counts: Mapping[str, int], vocabulary: Mapping[str, float]) -> float:
    """f15-f17: the sum of (1 + ln tf)·idf over the query's terms that are in the domain's vocabulary.

    >>> tfidf({"integral": 1, "the": 3}, {"integral": 5.0})
    5.0
    """
    return sum((1.0 + math.log(n)) * vocabulary[t] for t, n in counts.items() if t in vocabulary)


def difficulty_density(text: str) -> float:
    """f18: how many of the 47 markers H are in the query, over its words.

    >>> difficulty_density("Compare and contrast Kant and Hume.") > difficulty_density("Hume and Kant")
    True
    """
    lower = text.lower()
    # a plain search first: most queries hold no marker, and the whole-word pattern costs thirty times as much
    there = [pattern for marker, pattern in _marker_patterns() if marker in lower]
    found = sum(pattern.search(lower) is not None for pattern in there) if there else 0
    return found / len(text.split()) if found else 0.0


def is_multiple_choice(text: str) -> float:
    """f19: whether options are enumerated: "(A) … (B) …", "A. … B. …", or under a heading "Options:".

    >>> is_multiple_choice("Pick one: (A) red (B) blue"), is_multiple_choice("Plan A) is good")
    (1.0, 0.0)
    """
    if "A" in text and "B" in text and {"A", "B"} <= set(_OPTION.findall(text)):
        return 1.0
    return float(":" in text and _OPTIONS_HEADING.search(text) is not None)


def is_open_ended(text: str, multiple_choice: float) -> float:
    """f20: opens with an interrogative and has no options."""
    return float(not multiple_choice and _INTERROGATIVE.match(text) is not None)


def is_proof(text: str) -> float:
    """f21: asks for a proof or derivation; to mention one is not to ask for it.

    >>> is_proof("Prove that 2 is prime."), is_proof("Who proved the four colour theorem?")
    (1.0, 0.0)
    """
    lower = text.lower()
    return float(any(stem in lower for stem in _PROOF_STEMS) and _PROOF.search(text) is not None)


def count_terms(terms: list[str]) -> Counter[str]:
    """How often each term occurs."""
    return Counter(terms)


@cache
def vocabularies() -> dict[str, dict[str, float]]:
    """Term to idf for each of `FIELDS`, as `scripts/build_vocabularies.py` wrote them."""
    raw = json.loads(_data("vocabularies.json"))
    return {field: dict(raw["vocabularies"][field]) for field in FIELDS}


@cache
def field_terms() -> frozenset[str]:
    """The terms of all vocabularies."""
    return frozenset().union(*vocabularies().values())


@cache
def markers() -> tuple[str, ...]:
    """The 47 difficulty markers H."""
    return tuple(line for line in _data("markers.txt").splitlines() if line and not line.startswith("#"))


@cache
def _marker_patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((m, re.compile(rf"\b{re.escape(m)}\b")) for m in markers())


def _data(name: str) -> str:
    return resources.files("odar.difficulty").joinpath("data", name).read_text("utf-8")
