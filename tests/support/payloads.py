"""What model servers send, in OpenAI's and in Anthropic's shape."""

from __future__ import annotations

from typing import Any

LogprobEntry = dict[str, Any]


def logprob_entries(text: str, logprob: float | None = -0.1) -> list[LogprobEntry]:
    """One entry a word, with its bytes, as OpenAI sends them."""
    words = [word + " " for word in text.split(" ")]
    words[-1] = words[-1].removesuffix(" ")
    return [{"token": word, "logprob": logprob, "bytes": list(word.encode())} for word in words if word]


def chat_payload(
    *texts: str, tokens: list[LogprobEntry] | None = None, usage: Any = ..., **more: Any
) -> dict[str, Any]:
    """A chat-completions reply with a choice for each text."""
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": text},
            "finish_reason": "stop",
            "logprobs": {"content": logprob_entries(text) if tokens is None else tokens},
        }
        for index, text in enumerate(texts)
    ]
    if usage is ...:
        usage = {
            "prompt_tokens": 10,
            "completion_tokens": 5 * len(texts),
            "total_tokens": 10 + 5 * len(texts),
        }
    return {
        "id": "c",
        "object": "chat.completion",
        "model": "served",
        "choices": choices,
        "usage": usage,
        **more,
    }


def chat_events(text: str, tokens: list[LogprobEntry] | None = None) -> list[dict[str, Any]]:
    """The events of a streamed chat-completions reply, one token each, usage last."""
    entries = logprob_entries(text) if tokens is None else tokens

    def event(delta: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"model": "served", "choices": [{"index": 0, "delta": delta, "finish_reason": None, **more}]}

    return [
        event({"role": "assistant", "content": ""}),
        *(event({"content": entry["token"]}, logprobs={"content": [entry]}) for entry in entries),
        event({}, finish_reason="stop"),
        {"model": "served", "choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": len(entries)}},
    ]


def message_payload(text: str, **more: Any) -> dict[str, Any]:
    """A reply of the Anthropic Messages API."""
    content = [{"type": "text", "text": text}]
    usage = {
        "input_tokens": 10,
        "output_tokens": 5,
        "cache_read_input_tokens": 4,
        "cache_creation_input_tokens": 2,
    }
    return {
        "type": "message",
        "model": "claude",
        "content": content,
        "stop_reason": "end_turn",
        "usage": usage,
    } | more


def message_events(text: str) -> list[dict[str, Any]]:
    """The events of a streamed Messages reply, one word each."""
    start = {
        "type": "message",
        "model": "claude",
        "content": [],
        "usage": {"input_tokens": 10, "output_tokens": 1},
    }
    words = [entry["token"] for entry in logprob_entries(text)]
    return [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": w}} for w in words),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": len(words)},
        },
        {"type": "message_stop"},
    ]
