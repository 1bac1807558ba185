"""The policy of a question by the settings, and its agents with their skills."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from odar.errors import InputError
from odar.policy.base import FixedPolicy, Policy
from odar.policy.belief import RatedAgent
from odar.policy.cascade import CascadePolicy, default_stages
from odar.policy.paper import PaperPolicy
from odar.types import CHEAP_AGENTS, DIRECT, SLOW, Ask, Route, Stage, Step

if TYPE_CHECKING:
    from odar.calibration_file import Calibration, Source
    from odar.catalogue import ModelCard
    from odar.settings import Settings


CHEAP_SKILL, STRONG_SKILL = 0.45, 0.77
"""Skills of agents about which only the price is known."""
VENDORS_CHEAP_SKILL = 0.62
"""Median skill of ten cheap models of vendors on MMLU-Pro; small open models have less."""


def forced_policy(settings: Settings, path: Route | str | None, model: str | None) -> Policy:
    """The policy that the caller chose: a model that answers alone, or a path of the paper."""
    if model is not None:
        return FixedPolicy((Stage((Ask(DIRECT),)),))
    try:
        return PaperPolicy.from_settings(settings.routing, forced=Route(path or ""))
    except ValueError:
        raise InputError(f"path {path!r} is not one of: {', '.join(Route)}") from None


def choose_policy(
    settings: Settings,
    calibration: Calibration,
    agents: Mapping[str, RatedAgent],
    skills: Sequence[float] = (),
    prefer_cascade: bool = False,
) -> Policy:
    """The policy of the settings.

    Args:
        settings: `policy` and `routing`.
        calibration: its belief replaces the shipped one.
        agents: skill and family of each agent.
        skills: the skills in the order of the agents, in place of their own; empty to keep these.
        prefer_cascade: whether the cascade replaces a fixed choice that a calibration has installed: if the caller
            names a dial, or the request is open-ended, of which no calibration has any.
    """
    installed = settings.origins.get(("policy",), "").startswith("calibration")
    if settings.policy == "paper":
        return PaperPolicy.from_settings(settings.routing)
    if settings.policy != "cascade" and not (prefer_cascade and installed):
        return FixedPolicy.parse(*settings.fixed_stages)
    named = dict(zip(agents, skills, strict=False))
    agents = {name: replace(agent, skill=named.get(name, agent.skill)) for name, agent in agents.items()}
    stages = tuple(map(Stage.parse, settings.routing.stages)) or default_stages(agents)
    most = max(settings.routing.samples, *(ask.samples for stage in stages for ask in stage.asks))
    return CascadePolicy(stages, agents, calibration.load_belief(), dict.fromkeys(agents, most))


def rate_agents(
    settings: Settings, calibration: Calibration, sources: Mapping[tuple[str, Step], Source]
) -> dict[str, RatedAgent]:
    """All agents with their skills: of the calibration, else the mean of the catalogue's scores, else a default."""
    agents = {}
    for name in settings.agent_names:
        card = settings.card(settings.agent(name).model)
        known = calibration.statistics.get(sources[name, Ask(name).step])
        skill = None if known is None else known.accuracy
        if skill is None:
            scores = card.scores.values()
            skill = sum(scores) / len(scores) if scores else _default_skill(name, card, settings)
        by_kind = (known.accuracy_by_kind or {}) if known is not None else {}
        unanswered = 0.0 if known is None else known.unanswered
        agents[name] = RatedAgent(name, skill, card.model_family, unanswered, tuple(by_kind.items()))
    return agents


def _default_skill(name: str, card: ModelCard, settings: Settings) -> float:
    """The skill of a model of which nothing is measured: by its price and who sells it.

    Without log-probs a wrong answer does not look like one, so the model must not be taken for better than it is.
    """
    if name in CHEAP_AGENTS:
        vendor = settings.providers.get(card.provider)
        sold = vendor is not None and vendor.cheap
        return VENDORS_CHEAP_SKILL if sold and card.logprobs else CHEAP_SKILL
    fast = settings.card(settings.fast.model).price
    if name == SLOW or fast is None or card.price is None or not fast.output:
        return STRONG_SKILL
    return STRONG_SKILL if card.price.output >= 2 * fast.output else CHEAP_SKILL
