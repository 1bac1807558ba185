"""The texts of a call in the form of the GenAI conventions: sent only where `store.content = true` allows it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from odar.conversation import Message, ToolCall
from odar.formats import load_json
from odar.providers.base import Completion


def input_messages(messages: Iterable[Message]) -> str:
    """A conversation as JSON. Pictures are named, not sent.

    >>> input_messages([Message("user", "Hi")])
    '[{"role": "user", "parts": [{"type": "text", "content": "Hi"}]}]'
    """
    return _dump([{"role": message.role, "parts": _parts(message)} for message in messages])


def output_messages(completions: Iterable[Completion]) -> str:
    """What a model wrote, one message a sample."""
    return _dump(
        [
            {
                "role": "assistant",
                "parts": [*_text(completion.text), *map(_call, completion.tool_calls)],
                "finish_reason": completion.finish,
            }
            for completion in completions
        ]
    )


def _parts(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [{"type": "tool_call_response", "id": message.tool_call_id, "response": message.text}]
    pictures = [{"type": "blob", "modality": "image", "mime_type": image.media_type} for image in message.images]
    return [*_text(message.text), *pictures, *map(_call, message.tool_calls)]


def _text(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "content": text}] if text else []


def _call(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = load_json(call.arguments)
    except ValueError:
        arguments = call.arguments  # a model may write broken JSON
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": arguments}


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
