"""Shared by tests of the gateway: turns, images, tool calls of upstreams."""

from __future__ import annotations

from typing import Any

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8


def turn(text: str = "What is 2 + 2?") -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def call_payload(arguments: str, name: str = "weather") -> dict[str, Any]:
    """A chat completion that calls a tool."""
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return {
        "id": "c",
        "object": "chat.completion",
        "model": "served",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls", "logprobs": None}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }


def call_events(pieces: list[str], name: str = "weather") -> list[dict[str, Any]]:
    """The same as a stream."""

    def event(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {"model": "served", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    first = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": ""}}
    return [
        event({"role": "assistant", "content": None, "tool_calls": [first]}),
        *(event({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in pieces),
        event({}, "tool_calls"),
        {"model": "served", "choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}},
    ]
