"""What the dashboard shows of each model: prices, capabilities, alignment statistics, the state of its breaker."""

from __future__ import annotations

import dataclasses
from typing import Any

from odar.agents.prompts import load_prompts
from odar.catalogue import ModelCard
from odar.gateway.service import Service
from odar.types import Role, Step


def report_models(service: Service) -> dict[str, Any]:
    """Every model of the catalogue and every one an agent uses, agents' models first."""
    settings = service.settings
    agents: dict[str, list[dict[str, Any]]] = {}
    for role in Role:
        for place, name in enumerate(settings.models_of(role)):
            agents.setdefault(name, []).append({"agent": role.value, "default": place == 0})
    names = dict.fromkeys([*agents, *settings.models])
    drift = [dataclasses.asdict(row) for row in service.odar.alignment_report()]
    return {
        "models": [
            _card(settings.card(name))
            | {
                "agents": agents.get(name, []),
                "usable": service.usable(name),
                "statistics": _statistics(service, name),
                "drift": [row for row in drift if row["model"] == name],
            }
            for name in names
        ],
        "breakers": _breakers(service),
    }


def _card(card: ModelCard) -> dict[str, Any]:
    return {
        "name": card.name,
        "provider": card.provider,
        "id": card.id,
        "context": card.context,
        "images": card.images,
        "logprobs": card.logprobs,
        "n": card.n,
        "price": None if card.price is None else dataclasses.asdict(card.price),
        "price_date": card.price_date,
        "scores": dict(card.scores),
    }


def _statistics(service: Service, model: str) -> list[dict[str, Any]]:
    """μ and σ of every calibrated source of this model, and whether it is one that this gateway samples from."""
    odar = service.odar
    here = {odar.source(model, step): step for step in Step if model in odar.settings.models_of(step.role)}
    sets = (load_prompts(service.settings.prompts), odar.prompts)  # of `odar ask`, and of this gateway
    steps = {prompt.md5: step.value for prompts in sets for step, prompt in prompts.items()}
    return [
        dataclasses.asdict(source)
        | dataclasses.asdict(known)
        | {"step": steps.get(source.prompt_md5), "in_use": source in here}
        for source, known in odar.calibration.statistics.entries.items()
        if source.model == model
    ]


def _breakers(service: Service) -> dict[str, dict[str, Any]]:
    """By provider; one that has not been needed yet has no breaker, and is not in here."""
    return {
        name: {"state": breaker.state.value, "failures": breaker.failures, "retry_s": breaker.waiting()}
        for name, breaker in service.breakers.items()
    }
