"""On what terms a model is asked: the agent's settings, overridden by what the client wants for itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from odar.catalogue import ModelCard
from odar.conversation import Options
from odar.providers.base import Quirks, Sampling
from odar.settings import AgentSettings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Terms:
    """Everything about a request but its conversation."""

    sampling: Sampling
    quirks: Quirks
    logprobs: bool
    timeout_s: float


def agent_terms(agent: AgentSettings, card: ModelCard, options: Options, seed: int | None) -> Terms:
    """The agent's settings where the client has no wish; log-probabilities wherever the model has them (SPEC 5)."""
    sampling = Sampling(
        temperature=_either(options.temperature, agent.temperature),
        top_p=_either(options.top_p, agent.top_p),
        max_tokens=_either(options.max_tokens, _fitting(agent.max_tokens, card)),
        stop=_either(options.stop, agent.stop),
        seed=_either(options.seed, seed),
    )
    quirks = Quirks(card.max_tokens_field, card.drop, card.extra)
    return Terms(sampling, quirks, card.logprobs, agent.timeout_s)


def plain_terms(card: ModelCard, options: Options, timeout_s: float, *, priced: bool = False) -> Terms:
    """The client's wishes and nothing else: what it did not set is the server's business.

    Where money is limited (`priced`) the length limit goes by the name that this model is known to respect.
    """
    sampling = Sampling(options.temperature, options.top_p, options.max_tokens, options.stop or (), options.seed)
    field = card.max_tokens_field if priced else options.max_tokens_field or card.max_tokens_field
    return Terms(sampling, Quirks(field), options.top_logprobs is not None, timeout_s)


def _either(wish: T | None, default: T) -> T:
    return default if wish is None else wish


def _fitting(max_tokens: int, card: ModelCard) -> int:
    """Our own limit leaves at least half of a small model's context to the conversation."""
    return min(max_tokens, max(1, card.context // 2)) if card.context else max_tokens
