"""The configured agents of an engine: their models, prompts and providers. Each query gets its `Team` from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from odar.agents.ledger import Ledger
from odar.agents.prompts import load_prompts, prompt_steps
from odar.agents.team import Team, token_limit
from odar.calibration_file import Source
from odar.catalogue import ModelCard
from odar.errors import InputError
from odar.providers.base import Provider
from odar.providers.pool import Guard, ProviderPool
from odar.settings import Settings
from odar.types import CHEAP_AGENTS, DIRECT, Query, Step


class Agents:
    """All agents of an engine, with every model that they may use.

    Args:
        settings: the effective settings.
        providers: providers by name, in place of the configured ones.
        guard: stands between the engine and every provider, such as a circuit breaker.
    """

    def __init__(
        self, settings: Settings, providers: Mapping[str, Provider] | None = None, guard: Guard | None = None
    ) -> None:
        self.settings = settings
        self.providers = ProviderPool(settings, providers, guard)
        self.prompts = load_prompts(settings.prompts)
        self.plain_prompts = load_prompts("chat")
        self.cards = {
            agent: [settings.card(model) for model in settings.models_of(agent)] for agent in settings.agent_names
        }
        """Models of each agent, its default first."""
        self.default_cards = {agent: cards[0] for agent, cards in self.cards.items()}
        longest = [max(cards, key=lambda card: card.context or math.inf) for cards in self.cards.values()]
        self.contexts = {card.name: card.context for card in longest if card.context}
        """Context length of each agent's longest model, if it is known."""

    def team(
        self, query: Query, ledger: Ledger, seed: int | None = None, models: Mapping[str, str] | None = None
    ) -> Team:
        """The agents for one query, with these models or their default models."""
        chosen = self.default_cards
        if models is not None:
            chosen = {
                agent: next(card for card in self.cards[agent] if card.name == name)
                for agent, name in models.items()
            }
        team = Team(
            self.settings,
            chosen,
            self.prompts,
            self.providers,
            query,
            ledger,
            seed=self.settings.seed if seed is None else seed,
            open_ended=self.prompts.is_open_ended(query),
        )
        if blind := sorted(set(self.cards) - set(chosen)):
            team.shortcuts.append(f"the model of {', '.join(blind)} cannot see images")
        return team

    def plain_team(self, query: Query, model: str, ledger: Ledger | None = None, seed: int | None = None) -> Team:
        """A single agent that passes a request through, without ODAR's prompts and settings."""
        cards = {DIRECT: self.settings.card(model)}
        ledger = ledger or self.ledger()
        return Team(self.settings, cards, self.plain_prompts, self.providers, query, ledger, seed, plain=True)

    def ledger(
        self, max_calls: int | None = None, max_cost_usd: float | None = None, deadline_s: float | None = None
    ) -> Ledger:
        """A new ledger with the configured limits, which a request can lower but not raise."""
        given = {"max_calls": max_calls, "max_cost_usd": max_cost_usd, "deadline_s": deadline_s}
        lowest: dict[str, Any] = {}
        for name, value in given.items():
            if value is not None and not (isinstance(value, int | float) and value >= 0):
                raise InputError(f"{name} = {value!r} is not a limit; it must be a number of at least 0")
            both = (getattr(self.settings.limits, name), value)
            lowest[name] = min((limit for limit in both if limit is not None), default=None)
        return Ledger(**lowest, configured_deadline_s=self.settings.limits.deadline_s)

    def sources(self) -> dict[tuple[str, Step], Source]:
        """The source of free energies of each agent's default model at each of its steps."""
        return {
            (agent, step): self.source(card.name, agent, step)
            for agent, card in self.default_cards.items()
            for step in ((Step.ANSWER,) if agent in CHEAP_AGENTS else (Step.SOLVE, Step.VERIFY))
        }

    def source(self, model: str, agent: str, step: Step) -> Source:
        """The source of free energies of a model at one step of an exact question."""
        return configured_source(self.settings, self.prompts.exact[step].md5, self.settings.card(model), agent)

    def prompt_steps(self) -> dict[str, str]:
        return prompt_steps(self.settings.prompts)


def configured_source(settings: Settings, prompt_md5: str, card: ModelCard, agent: str) -> Source:
    """The source of free energies of a model that answers one prompt as an agent of these settings."""
    own = settings.agent(agent)
    weight = settings.fusion.varentropy_weight
    return Source(card.name, prompt_md5, own.temperature, own.top_p, token_limit(own, card), weight)
