"""(Expert, role, modality) → model, from what the catalogue knows (SPEC 4.2)."""

from __future__ import annotations

from collections.abc import Sequence

from odar.dispatch.catalogue import ModelCard
from odar.dispatch.experts import Expert


def route_model(cards: Sequence[ModelCard], expert: Expert, *, images: bool) -> ModelCard:
    """The model for one role: of those that can see what must be seen (SPEC 3.4), the best in the expert's field.

    The first card is the role's default. Another replaces it only for a reason: the default cannot see the image,
    or both have a score in this field and the other's is higher. An unknown score is no reason.

    >>> plain = ModelCard("plain", "p", "plain", scores={"math": 0.6})
    >>> better = ModelCard("better", "p", "better", scores={"math": 0.7, "code": 0.5})
    >>> route_model([plain, better], Expert.MATH, images=False).name
    'better'
    >>> route_model([plain, better], Expert.CODE, images=False).name
    'plain'
    """
    able = [card for card in cards if card.images or not images] or list(cards[:1])
    chosen = able[0]
    for card in able[1:]:
        score, best = card.scores.get(expert), chosen.scores.get(expert)
        if score is not None and best is not None and score > best:
            chosen = card
    return chosen
