"""POST /v1/responses: a request read. The part of it that other models can follow: text, images, function calls.

What needs a server that remembers (previous_response_id, conversation, background) or tools that run at OpenAI is
refused by name.
"""

from __future__ import annotations

from typing import Any

from odar.conversation import Format, Image, Message, Options, Tool, ToolCall
from odar.gateway.chat_request import ChatRequest, read_model, take_extras
from odar.gateway.content import read_image, read_schema, read_tool, read_tool_choice
from odar.gateway.fields import Fields
from odar.types import Query

_UNSUPPORTED = ("previous_response_id", "conversation", "background", "prompt")
_IGNORED = ("store", "include", "truncation", "stream_options", "max_tool_calls")
"""Say nothing to a model, or nothing that applies to one call."""
_ROLES = ("system", "developer", "user", "assistant")


def read_responses(body: Any) -> ChatRequest:
    """A Responses request; fields nobody here knows go on as fields of a chat completion."""
    fields = Fields(body)
    model = read_model(fields)
    for name in _UNSUPPORTED:
        if fields.any(name):
            raise fields.bad(name, "is not supported: send the whole conversation in `input`")
    for name in _IGNORED:
        fields.any(name)
    instructions = fields.text("instructions")
    turns = [Message("system", instructions)] if instructions else []
    given = fields.needed("input", fields.any("input"))
    turns += [Message("user", given)] if isinstance(given, str) else _items(given, fields)
    stream = fields.flag("stream") or False
    extras = take_extras(fields)
    metadata = fields.table("metadata") or {}
    echo = {
        "instructions": instructions,
        "metadata": metadata,
        **{name: body.get(name) for name in ("temperature", "top_p", "max_output_tokens", "user")},
        "tools": body.get("tools") or [],
        "tool_choice": body.get("tool_choice") or "auto",
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "text": body.get("text") or {"format": {"type": "text"}},
    }
    return ChatRequest(model, Query.of(tuple(turns), _options(fields)), extras, stream, echo=echo)


def _options(fields: Fields) -> Options:
    reasoning = fields.table("reasoning") or {}
    effort = {"reasoning_effort": reasoning["effort"]} if reasoning.get("effort") else {}
    tools = fields.items("tools") or ()
    return Options(
        temperature=fields.number("temperature", at_most=2),
        top_p=fields.number("top_p", at_most=1),
        max_tokens=fields.integer("max_output_tokens", at_least=1),
        top_logprobs=fields.integer("top_logprobs", at_most=20),
        tools=tuple(_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools)),
        tool_choice=read_tool_choice(fields.any("tool_choice"), fields),
        parallel_tools=fields.flag("parallel_tool_calls"),
        format=_format(fields.table("text")),
        user=fields.text("user"),
        extra={**fields.rest(), **effort},
    )


def _items(items: Any, fields: Fields) -> list[Message]:
    if not isinstance(items, list) or not items:
        raise fields.bad("input", "must be a string or a list of items with at least one in it")
    turns: list[Message] = []
    for i, item in enumerate(items):
        own = Fields(item, f"input[{i}]")
        match own.text("type") or "message":
            case "message":
                turns.append(_message(own))
            case "function_call":
                call = _call(own)
                # Calls that stand together were made in one turn.
                before = turns[-1] if turns and turns[-1].role == "assistant" else None
                if before is not None:
                    turns[-1] = Message("assistant", before.text, tool_calls=(*before.tool_calls, call))
                else:
                    turns.append(Message("assistant", "", tool_calls=(call,)))
            case "function_call_output":
                text, images = _content(own.needed("output", own.any("output")), own, "output")
                call_id = own.needed("call_id", own.text("call_id"))
                turns.append(Message("tool", text, images, tool_call_id=call_id))
            case "reasoning":
                continue  # a model's own notes, for the provider that wrote them
            case kind:
                raise own.bad("type", f"{kind!r} is not supported; send messages and function calls")
    return turns


def _message(fields: Fields) -> Message:
    role = fields.needed("role", fields.choice("role", _ROLES))
    text, images = _content(fields.needed("content", fields.any("content")), fields, "content")
    return Message("system" if role == "developer" else role, text, images)


def _content(content: Any, fields: Fields, name: str) -> tuple[str, tuple[Image, ...]]:
    if isinstance(content, str):
        return content, ()
    if not isinstance(content, list):
        raise fields.bad(name, "must be a string or a list of parts")
    texts: list[str] = []
    images: list[Image] = []
    for i, part in enumerate(content):
        own = Fields(part, f"{fields.where}.{name}[{i}]")
        match own.needed("type", own.text("type")):
            case "input_text" | "output_text":
                texts.append(own.needed("text", own.text("text")))
            case "refusal":
                texts.append(own.needed("refusal", own.text("refusal")))
            case "input_image":
                address = own.needed("image_url", own.any("image_url"))
                images.append(read_image(address, f"{own.where}.image_url"))
            case kind:
                raise own.bad("type", f"{kind!r} is not supported; send input_text or input_image")
    return "\n".join(texts), tuple(images)


def _call(fields: Fields) -> ToolCall:
    call_id = fields.needed("call_id", fields.text("call_id"))
    return ToolCall(call_id, fields.needed("name", fields.text("name")), fields.text("arguments") or "")


def _tool(tool: Any, where: str) -> Tool:
    fields = Fields(tool, where)
    if (kind := fields.text("type")) != "function":
        raise fields.bad("type", f"{kind!r} runs at one provider; only function tools can be used here")
    return read_tool(fields, "parameters", None)


def _format(body: dict[str, Any] | None) -> Format | None:
    form = Fields(body or {}, "text").table("format")
    if form is None:
        return None
    fields = Fields(form, "text.format")
    match fields.needed("type", fields.choice("type", ("text", "json_object", "json_schema"))):
        case "json_object":
            return Format()
        case "json_schema":
            name = fields.text("name") or "answer"
            return read_schema(fields.any("schema"), "text.format.schema", name, None)
    return None
