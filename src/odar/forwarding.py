"""Which fields of a client's request are sent to a model server: an explicit list for each wire protocol.

An operator extends the list for one provider (`providers.NAME.forward`). A field that ODAR sets itself is never
taken from the client, and a field that changes the price is not sent if cost is limited. Everything else is
dropped, and the trace says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from odar.conversation import Options

FORWARDED: Mapping[str, frozenset[str]] = {
    "openai": frozenset({
        "frequency_penalty", "logit_bias", "presence_penalty", "prompt_cache_key", "safety_identifier",
        "verbosity",
    }),
    "anthropic": frozenset({"context_management", "thinking", "top_k"}),
}  # fmt: skip
"""Fields that are sent to every server, by protocol."""
PASSED_THROUGH: Mapping[str, frozenset[str]] = {
    "completions": frozenset({
        "best_of", "echo", "frequency_penalty", "logit_bias", "logprobs", "max_tokens", "model", "n",
        "presence_penalty", "prompt", "seed", "stop", "suffix", "temperature", "top_p", "user",
    }),
    "embeddings": frozenset({"dimensions", "encoding_format", "input", "model", "user"}),
}  # fmt: skip
"""Fields that are sent for requests that are not conversations, by endpoint."""
_READ_HERE = frozenset({"odar", "stream", "stream_options"})
"""Fields of such a request that are meant for the gateway."""
BETAS = (
    "advanced-tool-use-", "claude-code-", "context-management-", "effort-", "extended-cache-ttl-",
    "fine-grained-tool-streaming-", "interleaved-thinking-", "mid-conversation-system-", "output-128k-",
    "prompt-caching-", "structured-outputs-", "thinking-token-count-", "token-efficient-tools-", "tool-examples-",
)  # fmt: skip
"""Prefixes of the preview features that a client may switch on at an Anthropic server; others are left out."""
_HOSTED = (
    "bash", "code_execution", "code_interpreter", "computer", "custom", "file_search", "image_generation",
    "local_shell", "mcp", "memory", "namespace", "shell", "text_editor", "tool_search", "web_fetch", "web_search",
)  # fmt: skip
"""Types of tools that a note may name."""
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
RESERVED = frozenset({
    "best_of", "function_call", "functions", "logprobs", "max_completion_tokens", "max_output_tokens",
    "max_tokens", "messages", "model", "n", "output_config", "parallel_tool_calls", "prompt", "reasoning_effort",
    "response_format", "seed", "stop", "stop_sequences", "stream", "stream_options", "system", "temperature",
    "tool_choice", "tools", "top_logprobs", "top_p", "user",
})  # fmt: skip
"""Fields that ODAR sets itself; they cannot be forwarded."""
PRICED_OTHERWISE = frozenset({
    "audio", "cache_control", "container", "fallbacks", "inference_geo", "mcp_servers", "modalities", "models",
    "plugins", "prediction", "provider", "route", "service_tier", "speed", "web_search_options",
})  # fmt: skip
"""Fields under which the catalogue's price does not hold: another tier, another model, a tool with a price."""
_OTHERS = frozenset({
    "chat_template_kwargs", "enable_thinking", "extra_body", "guided_json", "metadata", "min_p", "options",
    "repetition_penalty", "store", "structured_outputs", "think", "top_k", "transforms",
})  # fmt: skip
_NAMEABLE = frozenset().union(*FORWARDED.values(), RESERVED, PRICED_OTHERWISE, _OTHERS)
"""Field names that a note may contain; others are text of the client, and are only counted."""


def select_fields(
    options: Options,
    *,
    protocol: str,
    forward: Collection[str] = (),
    fixed: Collection[str] = (),
    priced: bool = False,
    efforts: Sequence[str] = (),
) -> tuple[Options, str]:
    """Return the options that may be sent to this server, and a note about the others, or an empty string.

    Args:
        options: the client's.
        protocol: the server's.
        forward: fields, and types of tools, that the operator allows for this provider.
        fixed: what the catalogue sets for this model, and what the model rejects.
        priced: whether cost is limited, so that the price must be known.
        efforts: the model's levels of reasoning effort.

    >>> select_fields(Options(extra={"top_k": 5, "n": 9}), protocol="openai", forward=["top_k"])[1]
    'fields of the request were not sent on: n'
    >>> select_fields(Options(effort="max"), protocol="anthropic", efforts=["low", "medium", "high"])[0].effort
    'high'
    """
    own = options.protocol == protocol
    changes: dict[str, Any] = {}
    dropped: list[str] = []
    notes: list[str] = []
    if options.extra:
        allowed = ({*FORWARDED.get(protocol, ()), *forward} - RESERVED) - set(fixed) if own else set()
        if priced:
            allowed -= PRICED_OTHERWISE
        kept = {name: value for name, value in options.extra.items() if name in allowed}
        dropped += [name for name in options.extra if name not in kept]
        changes |= {"extra": kept} if dropped else {}
    if options.effort is not None:
        level = options.effort if own else nearest_effort(options.effort, efforts)
        level = None if {"reasoning_effort", "output_config"} & set(fixed) else level
        if level != options.effort:
            changes["effort"] = level
            dropped += ["reasoning_effort"] if level is None else []
    if options.betas:
        betas = tuple(beta for beta in options.betas if protocol == "anthropic" and beta.startswith(BETAS))
        changes["betas"] = betas
    if any(tool.hosted for tool in options.tools):
        usable = () if priced or not own else forward
        tools = tuple(tool for tool in options.tools if not tool.hosted or tool.hosted in usable)
        missing = sorted({_hosted_name(tool.hosted) for tool in options.tools if tool not in tools})
        changes["tools"] = tools
        if missing:
            notes.append(f"tools that run at a provider were left out: {', '.join(missing)}")
        choice = options.tool_choice
        if choice is not None and (
            not tools or (choice.mode == "tool" and all(t.name != choice.name for t in tools))
        ):
            changes["tool_choice"] = None
        changes |= {} if tools else {"parallel_tools": None}
    if options.left_out:
        notes.append(f"items of the conversation were left out: {', '.join(sorted(options.left_out))}")
    if dropped:
        notes.insert(0, f"fields of the request were not sent on: {_listed(dropped)}")
    return (dataclasses.replace(options, **changes) if changes else options), "; ".join(notes)


def select_body(
    body: Mapping[str, Any],
    endpoint: str,
    *,
    forward: Collection[str] = (),
    dropped: Collection[str] = (),
    priced: bool = False,
) -> tuple[dict[str, Any], str]:
    """Return the fields of a body that is passed through which may be sent on, and a note about the rest.

    >>> select_body({"model": "m", "input": "a", "service_tier": "flex", "odar": {}}, "embeddings")
    ({'model': 'm', 'input': 'a'}, 'fields of the request were not sent on: service_tier')
    """
    further = {*forward} - RESERVED - (PRICED_OTHERWISE if priced else set())
    allowed = (PASSED_THROUGH[endpoint] | further) - set(dropped)
    given = {name: value for name, value in body.items() if value is not None and name not in _READ_HERE}
    left = [name for name in given if name not in allowed]
    note = f"fields of the request were not sent on: {_listed(left)}" if left else ""
    return {name: value for name, value in given.items() if name in allowed}, note


def nearest_effort(effort: str, levels: Sequence[str]) -> str | None:
    """Return the closest level of reasoning effort, the higher of two; None without levels or for an unknown word.

    >>> nearest_effort("minimal", ["low", "medium", "high"]), nearest_effort("max", ["low", "high", "xhigh"])
    ('low', 'xhigh')
    """
    if effort in levels:
        return effort
    if effort not in _EFFORTS or not levels:
        return None
    place = _EFFORTS.index(effort)
    return min(levels, key=lambda level: (abs(_EFFORTS.index(level) - place), -_EFFORTS.index(level)))


def _hosted_name(kind: str) -> str:
    return next((name for name in sorted(_HOSTED, key=len, reverse=True) if kind.startswith(name)), "unknown")


def _listed(names: list[str]) -> str:
    known = sorted(name for name in names if name in _NAMEABLE)
    others = len(names) - len(known)
    return ", ".join([*known, *([f"{others} unknown"] if others else [])])
