"""Query → expert, by rules only (SPEC 4.1): modality, then keywords, then the type of question, then general.

Deterministic: within a level the expert with the most keywords wins, ties go by the order of `Expert`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources

from odar.types import Query


class Expert(StrEnum):
    """Fields of knowledge, in the order that breaks ties."""

    MATH = "math"
    CODE = "code"
    LOGIC = "logic"
    LANGUAGE = "language"
    COMMONSENSE = "commonsense"
    KNOWLEDGE = "knowledge"
    MULTIMODAL = "multimodal"
    GENERAL = "general"


@dataclass(frozen=True, slots=True)
class Routed:
    """An expert, and the cue that chose it."""

    expert: Expert
    cue: str


def route_expert(query: Query) -> Routed:
    """The expert for a query.

    >>> route_expert(Query("Solve the equation x + 2 = 5 for x.")).expert
    <Expert.MATH: 'math'>
    >>> route_expert(Query("Hello there")).cue
    'fallback'
    """
    if query.images:
        return Routed(Expert.MULTIMODAL, "modality: image")
    rules = _rules()
    text = query.text[:_READ].lower()
    words = set(_WORD.findall(text))
    best, hits = Expert.GENERAL, set[str]()
    for expert, keywords in rules.keywords:
        if len(found := keywords.found(text, words)) > len(hits):  # the first of equals
            best, hits = expert, found
    if hits:
        return Routed(best, "keywords: " + ", ".join(sorted(hits)[:5]))
    for expert, name, pattern in rules.questions:
        if pattern.search(text):
            return Routed(expert, f"question type: {name}")
    return Routed(Expert.GENERAL, "fallback")


_READ = 20_000
"""Characters that are looked at: a field shows early, and a megabyte is not worth reading for it."""


_WORD = re.compile(r"\w+")


class Keywords:
    """Which of an expert's keywords are in a text, as whole words; of keywords that overlap, the first.

    A keyword that is one word is looked up among the text's words. The others ("linked list", "c++"), and words
    that are part of one ("sqrt" of "\\\\sqrt"), need a pattern; it runs only if one of them is in the text.

    >>> text = "is a linked list in c++ a list?"
    >>> sorted(Keywords(["linked list", "c++", "lis"]).found(text, set(text.split())))
    ['c++', 'linked list']
    """

    def __init__(self, keywords: Iterable[str]) -> None:
        listed = list(keywords)
        phrases = [keyword for keyword in listed if not _WORD.fullmatch(keyword)]
        parts = {word for phrase in phrases for word in _WORD.findall(phrase)}
        self._words = frozenset(listed) - frozenset(phrases) - parts
        self._phrases = tuple(keyword for keyword in listed if keyword not in self._words)
        # in the order of the list: where two begin at one place, the first wins
        self._pattern = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, self._phrases)) + r")(?!\w)")

    def found(self, text: str, words: set[str]) -> set[str]:
        """The keywords in a lower-case text, of which `words` are the words."""
        hits = words & self._words
        if any(map(text.__contains__, self._phrases)):
            hits.update(self._pattern.findall(text))
        return hits


@dataclass(frozen=True, slots=True)
class _Rules:
    keywords: tuple[tuple[Expert, Keywords], ...]
    """In the order of `Expert`."""
    questions: tuple[tuple[Expert, str, re.Pattern[str]], ...]


@cache
def _rules() -> _Rules:
    tree = tomllib.loads(resources.files("odar.dispatch").joinpath("experts.toml").read_text(encoding="utf-8"))
    listed = tree["keywords"]
    keywords = tuple((expert, Keywords(listed[expert])) for expert in Expert if expert in listed)
    questions = tuple((Expert(q["expert"]), q["name"], re.compile(q["pattern"])) for q in tree["questions"])
    return _Rules(keywords, questions)
