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

from odar.catalogue import ModelCard
from odar.difficulty.text import READ_LIMIT
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
    other_senses, keywords, questions = _rules()
    text = other_senses.sub(" ", core_question(query).text[:READ_LIMIT].lower())
    hits = []
    for expert, pattern, everyday, context in keywords:
        found = set(pattern.findall(text))
        # everyday words alone, as in "how do I return a book?", need their context
        if found - everyday or (found and context is not None and context.search(text)):
            hits.append((expert, found))
    if hits:
        expert, most = max(hits, key=lambda hit: len(hit[1]))  # the first of equals
        return expert, "keywords: " + ", ".join(sorted(most)[:5])
    for expert, name, pattern in questions:
        if pattern.search(text):
            return expert, f"question type: {name}"
    return Expert.GENERAL, "fallback"


_Keywords = tuple[Expert, re.Pattern[str], Set[str], re.Pattern[str] | None]
"""Keywords of an expert as whole words; those that are everyday words too, and the context that they then need."""


@cache
def _rules() -> tuple[re.Pattern[str], list[_Keywords], list[tuple[Expert, str, re.Pattern[str]]]]:
    """Phrases in which a keyword means something else, keywords in the order of `Expert`, types of questions."""
    tree = tomllib.loads(resources.files("odar.policy").joinpath("experts.toml").read_text(encoding="utf-8"))
    keywords: list[_Keywords] = []
    for expert in Expert:
        if expert in tree["keywords"]:
            # of two that begin at the same position, such as "linked list" and "list", the first listed
            listed = "|".join(map(re.escape, tree["keywords"][expert]))
            ambiguous = tree["ambiguous"].get(expert, {"words": ()})
            context = re.compile(ambiguous["context"]) if "context" in ambiguous else None
            pattern = re.compile(rf"(?<!\w)(?:{listed})(?!\w)")
            keywords.append((expert, pattern, frozenset(ambiguous["words"]), context))
    questions = [(Expert(q["expert"]), q["name"], re.compile(q["pattern"])) for q in tree["questions"]]
    return re.compile(r"\b(?:" + "|".join(tree["other_senses"]["phrases"]) + r")\b"), keywords, questions


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
    with_vision = [card for card in cards if card.images or not images] or list(cards[:1])
    suitable = [card for card in with_vision if card.context is None or tokens < card.context] or with_vision
    chosen = suitable[0]
    for card in (card for card in suitable[1:] if card.name not in fallbacks):
        score, best = card.scores.get(expert), chosen.scores.get(expert)
        if score is not None and best is not None and score > best:
            chosen = card
    return chosen


def assign(
    query: Query, cards: Mapping[str, Sequence[ModelCard]], *, fallbacks: Collection[str] = ()
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
    usable = {agent: card for agent, card in chosen.items() if card.images or not images} or chosen
    return Assignment(expert, cue, {agent: card.name for agent, card in usable.items()})
