"""POST /v1/chat/completions: a request read."""

from __future__ import annotations

from typing import Any

from odar.conversation import NO_OPTIONS, Format, Image, Message, Options, Tool, ToolCall, Wire
from odar.gateway.chat_request import ChatRequest, read_model, take_extras
from odar.gateway.content import read_image, read_schema, read_tool, read_tool_choice
from odar.gateway.errors import bad_field
from odar.gateway.fields import Fields
from odar.providers.openai_wire import PROTOCOL
from odar.types import Query

_ROLES = ("system", "developer", "user", "assistant", "tool")
_PLAIN = frozenset({"role", "content", "tool_calls", "tool_call_id"})


def read_chat(body: Any) -> ChatRequest:
    """A chat-completions request; fields nobody here knows go into `options.extra`."""
    fields = Fields(body)
    model = read_model(fields)
    listed = fields.needed("messages", fields.items("messages"))
    turns = tuple(_turn(turn, f"messages[{i}]") for i, turn in enumerate(listed))
    if not turns:
        raise fields.bad("messages", "is empty; put at least one turn into it")
    stream = fields.flag("stream") or False
    stream_options = fields.table("stream_options") or {}
    extras = take_extras(fields)
    return ChatRequest(
        model, Query.of(turns, _options(fields)), extras, stream, stream_options.get("include_usage") is True
    )


def _options(fields: Fields) -> Options:
    if not fields.rest():  # most clients say no more than whom they ask, and what
        return NO_OPTIONS
    named = "max_completion_tokens"
    newer, older = fields.integer(named, at_least=1), fields.integer("max_tokens", at_least=1)
    wanted, top = fields.flag("logprobs"), fields.integer("top_logprobs", at_most=20)
    if top is not None and not wanted:
        raise fields.bad("top_logprobs", "needs logprobs to be true")
    return Options(
        temperature=fields.number("temperature", at_most=2),
        top_p=fields.number("top_p", at_most=1),
        max_tokens=older if newer is None else newer,
        max_tokens_field=named if newer is not None else "max_tokens" if older is not None else "",
        stop=fields.texts("stop"),
        seed=fields.integer("seed", at_least=-(2**63), at_most=2**63 - 1),
        n=fields.integer("n", at_least=1, at_most=128) or 1,
        top_logprobs=(top or 0) if wanted else None,
        tools=tuple(_tool(tool, f"tools[{i}]") for i, tool in enumerate(fields.items("tools") or ())),
        tool_choice=read_tool_choice(fields.any("tool_choice"), fields),
        parallel_tools=fields.flag("parallel_tool_calls"),
        format=_format(fields.table("response_format")),
        user=fields.text("user"),
        effort=fields.text("reasoning_effort"),
        extra=fields.rest(),
    )


def _turn(turn: Any, where: str) -> Message:
    fields = Fields(turn, where)
    role = fields.needed("role", fields.choice("role", _ROLES))
    content = fields.any("content")
    calls = tuple(
        _call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(fields.items("tool_calls") or ())
    )
    call_id = fields.text("tool_call_id")
    if role == "tool" and call_id is None:
        raise fields.bad("tool_call_id", "is missing: which call is this the result of?")
    text, images, foreign = _content(content, f"{where}.content")
    if content is None and role != "assistant":
        raise fields.bad("content", "is missing")
    plain = isinstance(content, str | None) and role != "developer" and not turn.keys() - _PLAIN
    return Message(
        role="system" if role == "developer" else role,
        text=text,
        images=images,
        tool_calls=calls,
        tool_call_id=call_id,
        wire=None if plain else Wire(PROTOCOL, turn),
        untranslated=foreign,
    )


def _content(content: Any, where: str) -> tuple[str, tuple[Image, ...], tuple[str, ...]]:
    """The text and the images in it, and the kinds of content that are neither."""
    if content is None or isinstance(content, str):
        return content or "", (), ()
    if not isinstance(content, list):
        raise bad_field(where, "must be a string or a list of parts")
    texts: list[str] = []
    images: list[Image] = []
    foreign: list[str] = []
    for i, part in enumerate(content):
        fields = Fields(part, f"{where}[{i}]")
        kind = fields.needed("type", fields.text("type"))
        if kind in ("text", "refusal"):
            texts.append(fields.needed(kind, fields.text(kind)))
        elif kind == "image_url":
            address = fields.needed("image_url", fields.any("image_url"))
            url = address.get("url") if isinstance(address, dict) else address
            images.append(read_image(url, f"{where}[{i}].image_url.url"))
        else:
            foreign.append(kind)
    return "\n".join(texts), tuple(images), tuple(foreign)


def _call(call: Any, where: str) -> ToolCall:
    fields = Fields(call, where)
    call_id = fields.needed("id", fields.text("id"))
    function = Fields(fields.needed("function", fields.table("function")), f"{where}.function")
    name = function.needed("name", function.text("name"))
    return ToolCall(call_id, name, function.text("arguments") or "")


def _tool(tool: Any, where: str) -> Tool:
    fields = Fields(tool, where)
    if (kind := fields.text("type")) != "function":
        raise fields.bad("type", f"{kind!r} is not supported; only function tools can be compared between models")
    function = fields.needed("function", fields.table("function"))
    return read_tool(Fields(function, f"{where}.function"), "parameters", Wire(PROTOCOL, tool))


def _format(body: dict[str, Any] | None) -> Format | None:
    if body is None:
        return None
    fields = Fields(body, "response_format")
    match fields.needed("type", fields.choice("type", ("text", "json_object", "json_schema"))):
        case "json_object":
            return Format(wire=Wire(PROTOCOL, body))
        case "json_schema":
            inner = Fields(fields.needed("json_schema", fields.table("json_schema")), "response_format.json_schema")
            name = inner.needed("name", inner.text("name"))
            where = "response_format.json_schema.schema"
            return read_schema(inner.any("schema") or {}, where, name, Wire(PROTOCOL, body))
    return None
