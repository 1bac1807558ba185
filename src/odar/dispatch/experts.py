"""Query → expert, by rules only (SPEC 4.1): modality, then keywords, then the type of question, then general.

Deterministic: within a level the expert with the most keywords wins, ties go by the order of `Expert`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
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
    hits = {expert: sorted(set(pattern.findall(text))) for expert, pattern in rules.keywords.items()}
    best = max(Expert, key=lambda expert: len(hits.get(expert, ())))  # the first of equals, in the order of Expert
    if hits.get(best):
        return Routed(best, "keywords: " + ", ".join(hits[best][:5]))
    for expert, name, pattern in rules.questions:
        if pattern.search(text):
            return Routed(expert, f"question type: {name}")
    return Routed(Expert.GENERAL, "fallback")


_READ = 20_000
"""Characters that are looked at: a field shows early, and a megabyte is not worth reading for it."""


@dataclass(frozen=True, slots=True)
class _Rules:
    keywords: Mapping[Expert, re.Pattern[str]]
    questions: tuple[tuple[Expert, str, re.Pattern[str]], ...]


@cache
def _rules() -> _Rules:
    tree = tomllib.loads(resources.files("odar.dispatch").joinpath("experts.toml").read_text(encoding="utf-8"))
    keywords = {
        Expert(name): re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, words)) + r")(?!\w)")
        for name, words in tree["keywords"].items()
    }
    questions = tuple((Expert(q["expert"]), q["name"], re.compile(q["pattern"])) for q in tree["questions"])
    return _Rules(keywords, questions)
