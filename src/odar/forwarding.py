"""Which fields of a client's request reach a model server: an explicit list for each wire protocol.

An operator extends the list for one provider (`providers.NAME.forward`). A field that ODAR sets itself is never
taken from the client, and a field that changes the price is not sent where money is limited. Everything else is
dropped, and the trace says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from odar.conversation import Options

FORWARDED: Mapping[str, frozenset[str]] = {
    "openai": frozenset(
        {
            "frequency_penalty",
            "logit_bias",
            "presence_penalty",
            "prompt_cache_key",
            "reasoning_effort",
            "safety_identifier",
            "verbosity",
        }
    ),
    "anthropic": frozenset({"thinking", "top_k"}),
}
"""By protocol: what a client may say to every server that speaks it."""
RESERVED = frozenset(
    {
        "best_of",
        "function_call",
        "functions",
        "logprobs",
        "max_completion_tokens",
        "max_output_tokens",
        "max_tokens",
        "messages",
        "model",
        "n",
        "output_config",
        "parallel_tool_calls",
        "prompt",
        "response_format",
        "seed",
        "stop",
        "stop_sequences",
        "stream",
        "stream_options",
        "system",
        "temperature",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "user",
    }
)
"""What ODAR sets itself; no setting lets a client say it past ODAR."""
PRICED_OTHERWISE = frozenset(
    {
        "audio",
        "cache_control",
        "container",
        "fallbacks",
        "inference_geo",
        "mcp_servers",
        "modalities",
        "models",
        "plugins",
        "prediction",
        "provider",
        "route",
        "service_tier",
        "speed",
        "web_search_options",
    }
)
"""Fields under which the catalogue's price does not hold: another tier, another model, a tool with a price."""
_OTHERS = frozenset(
    {
        "chat_template_kwargs",
        "context_management",
        "enable_thinking",
        "extra_body",
        "guided_json",
        "metadata",
        "min_p",
        "options",
        "repetition_penalty",
        "store",
        "structured_outputs",
        "think",
        "top_k",
        "transforms",
    }
)
_NAMEABLE = frozenset().union(*FORWARDED.values(), RESERVED, PRICED_OTHERWISE, _OTHERS)
"""Names that a note may repeat; any other is the client's own text, and is only counted."""


def select_fields(
    options: Options,
    *,
    protocol: str,
    forward: Collection[str] = (),
    fixed: Collection[str] = (),
    priced: bool = False,
) -> tuple[Options, str]:
    """The options with only those fields that may go on, and a note about the others; empty if there are none.

    Args:
        options: the client's.
        protocol: what the server speaks.
        forward: what the operator allows for this provider.
        fixed: what the catalogue sets for this model.
        priced: whether money is limited, so that the price must be known.

    >>> select_fields(Options(extra={"top_k": 5, "n": 9}), protocol="openai", forward=["top_k"])[1]
    'fields of the request were not sent on: n'
    """
    if not options.extra:
        return options, ""
    allowed: set[str] = set()
    if options.protocol == protocol:
        allowed = ({*FORWARDED.get(protocol, ()), *forward} - RESERVED) - set(fixed)
        if priced:
            allowed -= PRICED_OTHERWISE
    kept = {name: value for name, value in options.extra.items() if name in allowed}
    dropped = [name for name in options.extra if name not in kept]
    if not dropped:
        return options, ""
    return dataclasses.replace(options, extra=kept), f"fields of the request were not sent on: {_listed(dropped)}"


def unusable_forward(names: Iterable[str]) -> list[str]:
    """Which of these an operator cannot allow, because ODAR sets them."""
    return sorted(set(names) & RESERVED)


def merged(extra: Mapping[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """A body with the client's further fields; what is in the body already stays as it is."""
    return {**extra, **body} if extra else body


def _listed(names: list[str]) -> str:
    known = sorted(name for name in names if name in _NAMEABLE)
    others = len(names) - len(known)
    return ", ".join([*known, *([f"{others} unknown"] if others else [])])
