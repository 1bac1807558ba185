"""Selection of the fields of a client's request that are sent to a model server, by a list for each protocol.

An operator extends the list for one provider (`providers.NAME.forward`). A field that ODAR sets itself is never
taken from the client, and a field that changes the price is not sent if cost is limited. All other fields are
dropped, and the trace says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from odar.catalogue import REASONING_TOKENS
from odar.conversation import ChatParameters

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
_GATEWAY_FIELDS = frozenset({"odar", "stream", "stream_options"})
"""Fields of such a request that only the gateway reads."""
BETAS = (
    "advanced-tool-use-", "claude-code-", "context-management-", "effort-", "extended-cache-ttl-",
    "fine-grained-tool-streaming-", "interleaved-thinking-", "mid-conversation-system-", "output-128k-",
    "prompt-caching-", "structured-outputs-", "thinking-token-count-", "token-efficient-tools-", "tool-examples-",
)  # fmt: skip
"""Prefixes of the preview features that a client may switch on at an Anthropic server; others are dropped."""
_HOSTED_TOOLS = (
    "bash", "code_execution", "code_interpreter", "computer", "custom", "file_search", "image_generation",
    "local_shell", "mcp", "memory", "namespace", "shell", "text_editor", "tool_search", "web_fetch", "web_search",
)  # fmt: skip
"""Types of hosted tools that a note may name."""
_EFFORTS = tuple(REASONING_TOKENS)
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
"""Fields that make the catalogue's price wrong: another tier, another model, a tool with a price."""
_OTHER_FIELDS = frozenset({
    "chat_template_kwargs", "enable_thinking", "extra_body", "guided_json", "metadata", "min_p", "options",
    "repetition_penalty", "store", "structured_outputs", "think", "top_k", "transforms",
})  # fmt: skip
_NAMEABLE = frozenset().union(*FORWARDED.values(), RESERVED, PRICED_OTHERWISE, _OTHER_FIELDS)
"""Field names that a note may contain; other names are text of the client, and only counted."""


def select_fields(
    parameters: ChatParameters,
    *,
    protocol: str,
    forward: Collection[str] = (),
    fixed: Collection[str] = (),
    cost_limited: bool = False,
    efforts: Sequence[str] = (),
) -> tuple[ChatParameters, str]:
    """The parameters that may be sent to this server, and a note about the others, or an empty string.

    Args:
        parameters: parameters of the client's request.
        protocol: protocol of the server.
        forward: fields, and types of tools, that the operator allows for this provider.
        fixed: fields that the catalogue sets for this model, or that the model rejects.
        cost_limited: whether cost is limited, so that the price must be known.
        efforts: levels of reasoning effort of the model.

    >>> select_fields(ChatParameters(extra={"top_k": 5, "n": 9}), protocol="openai", forward=["top_k"])[1]
    'fields of the request were not sent on: n'
    >>> select_fields(ChatParameters(effort="max"), protocol="anthropic", efforts=["low", "high"])[0].effort
    'high'
    """
    same_protocol = parameters.protocol == protocol
    changes: dict[str, Any] = {}
    dropped: list[str] = []
    notes: list[str] = []
    # fields that ODAR does not know
    if parameters.extra:
        allowed = {*FORWARDED.get(protocol, ()), *forward} - RESERVED - set(fixed) if same_protocol else set()
        if cost_limited:
            allowed -= PRICED_OTHERWISE
        dropped = [name for name in parameters.extra if name not in allowed]
        if dropped:
            changes["extra"] = {name: value for name, value in parameters.extra.items() if name in allowed}
    # effort, betas and tools, which only some servers have
    if parameters.effort is not None:
        effort = parameters.effort if same_protocol else nearest_effort(parameters.effort, efforts)
        if {"reasoning_effort", "output_config"} & set(fixed):
            effort = None
        if effort != parameters.effort:
            changes["effort"] = effort
        if effort is None:
            dropped.append("reasoning_effort")
    if parameters.betas:
        changes["betas"] = tuple(b for b in parameters.betas if protocol == "anthropic" and b.startswith(BETAS))
    if any(tool.hosted for tool in parameters.tools):
        changes |= _select_tools(parameters, forward if same_protocol and not cost_limited else ())
        if missing := {_hosted_name(tool.hosted) for tool in parameters.tools if tool not in changes["tools"]}:
            names = ", ".join(sorted(missing))
            notes.append(f"tools that run at a provider were left out, offer functions instead: {names}")
    if parameters.left_out:
        notes.append(f"items of the conversation were left out: {', '.join(sorted(parameters.left_out))}")
    if dropped:
        notes.insert(0, _dropped_note(dropped))
    return (dataclasses.replace(parameters, **changes) if changes else parameters), "; ".join(notes)


def _select_tools(parameters: ChatParameters, allowed: Collection[str]) -> dict[str, Any]:
    """The changes of the parameters without hosted tools of types that are not allowed."""
    tools = tuple(tool for tool in parameters.tools if not tool.hosted or tool.hosted in allowed)
    choice = parameters.tool_choice
    if not tools:
        return {"tools": (), "tool_choice": None, "parallel_tools": None}
    if choice is not None and choice.mode == "tool" and all(tool.name != choice.name for tool in tools):
        choice = None
    return {"tools": tools, "tool_choice": choice}


def select_body(
    body: Mapping[str, Any],
    endpoint: str,
    *,
    forward: Collection[str] = (),
    dropped: Collection[str] = (),
    cost_limited: bool = False,
) -> tuple[dict[str, Any], str]:
    """The fields that may be sent on of a body that is passed through, and a note about the others.

    >>> select_body({"model": "m", "input": "a", "service_tier": "flex", "odar": {}}, "embeddings")
    ({'model': 'm', 'input': 'a'}, 'fields of the request were not sent on: service_tier')
    """
    allowed = (PASSED_THROUGH[endpoint] | ({*forward} - RESERVED)) - set(dropped)
    if cost_limited:
        allowed -= PRICED_OTHERWISE
    given = {name: value for name, value in body.items() if value is not None and name not in _GATEWAY_FIELDS}
    others = [name for name in given if name not in allowed]
    selected = {name: value for name, value in given.items() if name in allowed}
    return selected, _dropped_note(others) if others else ""


def nearest_effort(effort: str, levels: Sequence[str]) -> str | None:
    """The closest level of reasoning effort, the higher of two; None without levels or for an unknown word.

    >>> nearest_effort("minimal", ["low", "medium", "high"]), nearest_effort("max", ["low", "high", "xhigh"])
    ('low', 'xhigh')
    """
    if effort in levels:
        return effort
    if effort not in _EFFORTS or not levels:
        return None
    rank = _EFFORTS.index(effort)
    return min(levels, key=lambda level: (abs(_EFFORTS.index(level) - rank), -_EFFORTS.index(level)))


def _hosted_name(kind: str) -> str:
    return next((name for name in sorted(_HOSTED_TOOLS, key=len, reverse=True) if kind.startswith(name)), "unknown")


def _dropped_note(names: list[str]) -> str:
    shown = sorted(name for name in names if name in _NAMEABLE)
    if len(shown) < len(names):
        shown.append(f"{len(names) - len(shown)} unknown")
    return f"fields of the request were not sent on: {', '.join(shown)}"
