"""Query → who works on it: the expert, and a model for each agent (SPEC 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from odar.dispatch.catalogue import ModelCard
from odar.dispatch.experts import Expert, Routed, route_expert
from odar.dispatch.models import route_model
from odar.types import Assignment, Query, Role


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """Both dispatch rules, each of which can be switched off for an ablation (SPEC 4.4).

    Args:
        cards: for each role its default model, then the alternatives.
        by_expert: off, every query goes to the general expert.
        by_model: off, every query gets the default pair.
    """

    cards: Mapping[Role, Sequence[ModelCard]]
    by_expert: bool = True
    by_model: bool = True

    def assign(self, query: Query) -> Assignment:
        """The expert and the pair of models for a query."""
        routed = route_expert(query) if self.by_expert else Routed(Expert.GENERAL, "switched off")
        pair = {
            role: route_model(cards, routed.expert, images=bool(query.images)) if self.by_model else cards[0]
            for role, cards in self.cards.items()
        }
        return Assignment(routed.expert, routed.cue, pair[Role.FAST].name, pair[Role.SLOW].name)
