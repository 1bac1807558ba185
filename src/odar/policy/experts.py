"""Query → expert → models, by rules only (SPEC 4.1): modality, then keywords, then the type of question.

The expert with the most keywords is chosen; the order of `Expert` breaks ties.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping, Sequence, Set
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import NamedTuple

from odar.catalogue import ModelCard
from odar.question import core_question
from odar.types import Assignment, Query


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


def route_expert(query: Query) -> tuple[Expert, str]:
    """The expert for a query, and the cue that chose it.

    >>> route_expert(Query("Solve the equation x + 2 = 5 for x."))
    (<Expert.MATH: 'math'>, 'keywords: equation')
    >>> route_expert(Query("What is the integral role of women in this novel?"))[0]
    <Expert.KNOWLEDGE: 'knowledge'>
    >>> route_expert(Query("Hello there"))
    (<Expert.GENERAL: 'general'>, 'fallback')
    """
    if query.images:
        return Expert.MULTIMODAL, "modality: image"
    rules = _rules()
    text = rules.other_senses.sub(" ", core_question(query).text[:_READ].lower())
    found = [(expert, set(keywords.findall(text))) for expert, keywords in rules.keywords]
    hits = [(expert, each) for expert, each in found if each and not rules.other_meaning(expert, each, text)]
    if hits:
        expert, most = max(hits, key=lambda each: len(each[1]))  # the first of equals
        return expert, "keywords: " + ", ".join(sorted(most)[:5])
    for expert, name, pattern in rules.questions:
        if pattern.search(text):
            return expert, f"question type: {name}"
    return Expert.GENERAL, "fallback"


_READ = 20_000
"""Number of characters that are read; the beginning of a question is enough."""


class _Rules(NamedTuple):
    keywords: list[tuple[Expert, re.Pattern[str]]]
    """The keywords of each expert as whole words, in the order of `Expert`."""
    questions: list[tuple[Expert, str, re.Pattern[str]]]
    other_senses: re.Pattern[str]
    """Phrases in which a keyword means something else, such as "integral role"."""
    ambiguous: dict[Expert, tuple[frozenset[str], re.Pattern[str]]]
    """Keywords that are everyday words too, and the context that they need if there are no others."""

    def other_meaning(self, expert: Expert, found: Set[str], text: str) -> bool:
        """Whether these keywords of an expert are everyday words here, as in "how do I return a book?"."""
        if expert not in self.ambiguous:
            return False
        words, context = self.ambiguous[expert]
        return found <= words and not context.search(text)


@cache
def _rules() -> _Rules:
    tree = tomllib.loads(resources.files("odar.policy").joinpath("experts.toml").read_text(encoding="utf-8"))
    listed = tree["keywords"]
    return _Rules(
        keywords=[(expert, _whole_words(listed[expert])) for expert in Expert if expert in listed],
        questions=[(Expert(q["expert"]), q["name"], re.compile(q["pattern"])) for q in tree["questions"]],
        other_senses=re.compile(r"\b(?:" + "|".join(tree["other_senses"]["phrases"]) + r")\b"),
        ambiguous={
            Expert(name): (frozenset(row["words"]), re.compile(row["context"]))
            for name, row in tree["ambiguous"].items()
        },
    )


def _whole_words(keywords: Sequence[str]) -> re.Pattern[str]:
    """Finds keywords such as "linked list" and "c++"; of two that begin at the same position, the first listed."""
    return re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, keywords)) + r")(?!\w)")


def route_model(
    cards: Sequence[ModelCard], expert: Expert, *, images: bool, tokens: int = 0, fallbacks: Collection[str] = ()
) -> ModelCard:
    """The model for one agent: of those that can see the images (SPEC 3.4), the best in the expert's field.

    A model whose context is shorter than the conversation (`tokens`) is skipped if another is long enough.
    The first card is the agent's default. Another replaces it only if the default cannot see the image, or if both
    have a score in this field and the other's is higher. Fallbacks only replace a model that cannot answer.

    >>> plain = ModelCard("plain", "p", "plain", scores={"math": 0.6})
    >>> better = ModelCard("better", "p", "better", scores={"math": 0.7, "code": 0.5})
    >>> route_model([plain, better], Expert.MATH, images=False).name
    'better'
    >>> route_model([plain, better], Expert.CODE, images=False).name
    'plain'
    """
    seeing = [card for card in cards if card.images or not images] or list(cards[:1])
    suitable = [card for card in seeing if card.context is None or tokens < card.context] or seeing
    chosen = suitable[0]
    for card in (card for card in suitable[1:] if card.name not in fallbacks):
        score, best = card.scores.get(expert), chosen.scores.get(expert)
        if score is not None and best is not None and score > best:
            chosen = card
    return chosen


def assign(
    query: Query,
    cards: Mapping[str, Sequence[ModelCard]],
    *,
    fallbacks: Collection[str] = (),
) -> Assignment:
    """The expert, and the model of each agent that can answer the query.

    Agents whose models cannot see the images of the query are left out, unless none can.

    Args:
        query: the question.
        cards: for each agent its default model, then the alternatives.
        fallbacks: names among the cards that only replace a model that cannot answer.
    """
    expert, cue = route_expert(query)
    images = bool(query.images)
    tokens = query.estimated_tokens
    chosen = {
        agent: route_model(each, expert, images=images, tokens=tokens, fallbacks=fallbacks)
        for agent, each in cards.items()
    }
    seeing = {agent: card for agent, card in chosen.items() if card.images or not images} or chosen
    return Assignment(expert, cue, {agent: card.name for agent, card in seeing.items()})
