"""POST /v1/messages: a request in Anthropic's shape, read."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from odar.conversation import Format, Image, Message, Options, Tool, ToolCall, ToolChoice, Wire
from odar.gateway.chat_request import ChatRequest, read_model, take_extras
from odar.gateway.content import decode, read_image, read_schema, read_tool
from odar.gateway.errors import bad_field
from odar.gateway.fields import Fields
from odar.providers.anthropic_wire import PROTOCOL
from odar.types import Query

_CHOICES = {"auto": "auto", "none": "none", "any": "required"}
_PRIVATE = frozenset({"thinking", "redacted_thinking"})
"""A model's own notes: meant for the provider that wrote them, and for no other."""


def read_messages(body: Any) -> ChatRequest:
    """A Messages request; fields nobody here knows go on to an Anthropic upstream, and to no other."""
    fields = Fields(body)
    model = read_model(fields)
    max_tokens = fields.needed("max_tokens", fields.integer("max_tokens", at_least=1))
    listed = fields.needed("messages", fields.items("messages"))
    turns = [*_system(fields.any("system"))]
    for i, turn in enumerate(listed):
        turns += _turns(turn, f"messages[{i}]")
    if not listed:
        raise fields.bad("messages", "is empty; put at least one turn into it")
    stream = fields.flag("stream") or False
    extras = take_extras(fields)
    return ChatRequest(model, Query.of(tuple(turns), _options(fields, max_tokens)), extras, stream)


def _options(fields: Fields, max_tokens: int) -> Options:
    tools = fields.items("tools") or ()
    choice, parallel = _tool_choice(fields.table("tool_choice"))
    metadata = fields.table("metadata") or {}
    user = metadata.get("user_id")
    config = Fields(fields.table("output_config") or {}, "output_config")
    return Options(
        temperature=fields.number("temperature", at_most=1),
        top_p=fields.number("top_p", at_most=1),
        max_tokens=max_tokens,
        stop=fields.texts("stop_sequences"),
        tools=tuple(_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools)),
        tool_choice=choice,
        parallel_tools=parallel,
        format=_format(config.table("format")),
        user=user if isinstance(user, str) else None,
        effort=config.text("effort"),
        protocol=PROTOCOL,
        extra=fields.rest(),
    )


def _system(system: Any, where: str = "system") -> list[Message]:
    if system is None:
        return []
    if isinstance(system, str):
        return [Message("system", system)]
    if not isinstance(system, list):
        raise bad_field(where, "must be a string or a list of text blocks")
    texts = [Fields(block, f"{where}[{i}]") for i, block in enumerate(system)]
    text = "\n\n".join(block.needed("text", block.text("text")) for block in texts)
    return [Message("system", text, wire=Wire(PROTOCOL, {"content": system}))]


def _turns(turn: Any, where: str) -> list[Message]:
    """One turn as it is written; results of tools become turns of their own, as the other protocols have them."""
    fields = Fields(turn, where)
    role = fields.needed("role", fields.choice("role", ("user", "assistant", "system")))
    content = fields.needed("content", fields.any("content"))
    if role == "system":
        (said,) = _system(content, f"{where}.content")
        return [dataclasses.replace(said, wire=Wire(PROTOCOL, {"role": role, "content": content}))]
    if isinstance(content, str):
        return [Message(role, content)]
    if not isinstance(content, list):
        raise fields.bad("content", "must be a string or a list of blocks")
    blocks = [Fields(block, f"{where}.content[{i}]") for i, block in enumerate(content)]
    kinds = [block.needed("type", block.text("type")) for block in blocks]
    results = [_result(b, content[i]) for i, b in enumerate(blocks) if kinds[i] == "tool_result"]
    unsigned = [kind == "thinking" and not content[i].get("signature") for i, kind in enumerate(kinds)]  # our own
    others = [i for i, kind in enumerate(kinds) if kind != "tool_result" and not unsigned[i]]
    if not others:
        return results
    texts: list[str] = []
    images: list[Image] = []
    calls: list[ToolCall] = []
    foreign: list[str] = []
    for i in others:
        match kinds[i]:
            case "text":
                texts.append(blocks[i].needed("text", blocks[i].text("text")))
            case "image":
                images.append(_image(blocks[i]))
            case "tool_use":
                calls.append(_call(blocks[i]))
            case kind if kind not in _PRIVATE:
                foreign.append(kind)
    wire = Wire(PROTOCOL, {"role": role, "content": [content[i] for i in others]})
    said = Message(role, "\n".join(texts), tuple(images), tuple(calls), wire=wire, untranslated=tuple(foreign))
    return [*results, said]


def _result(fields: Fields, block: dict[str, Any]) -> Message:
    call_id = fields.needed("tool_use_id", fields.text("tool_use_id"))
    content = fields.any("content")
    wire = Wire(PROTOCOL, {"role": "user", "content": [block]})
    if content is None or isinstance(content, str):
        return Message("tool", content or "", tool_call_id=call_id, wire=wire)
    if not isinstance(content, list):
        raise fields.bad("content", "must be a string or a list of blocks")
    texts: list[str] = []
    images: list[Image] = []
    foreign: list[str] = []
    for i, part in enumerate(content):
        inner = Fields(part, f"{fields.where}.content[{i}]")
        kind = inner.needed("type", inner.text("type"))
        if kind == "text":
            texts.append(inner.needed("text", inner.text("text")))
        elif kind == "image":
            images.append(_image(inner))
        else:
            foreign.append(kind)
    return Message("tool", "\n".join(texts), tuple(images), (), call_id, wire, tuple(foreign))


def _image(fields: Fields) -> Image:
    source = Fields(fields.needed("source", fields.table("source")), f"{fields.where}.source")
    kind = source.needed("type", source.choice("type", ("base64", "url")))
    if kind == "url":
        return read_image(source.needed("url", source.text("url")), f"{source.where}.url")
    media_type = source.needed("media_type", source.text("media_type"))
    return Image(media_type, decode(source.needed("data", source.text("data")), f"{source.where}.data"))


def _call(fields: Fields) -> ToolCall:
    call_id, name = fields.needed("id", fields.text("id")), fields.needed("name", fields.text("name"))
    return ToolCall(call_id, name, json.dumps(fields.table("input") or {}, ensure_ascii=False))


def _tool(tool: Any, where: str) -> Tool:
    fields = Fields(tool, where)
    if (kind := fields.text("type")) not in (None, "custom"):
        return Tool(fields.text("name") or str(kind), wire=Wire(PROTOCOL, tool), hosted=str(kind))
    return read_tool(fields, "input_schema", Wire(PROTOCOL, tool))


def _tool_choice(body: dict[str, Any] | None) -> tuple[ToolChoice | None, bool | None]:
    if body is None:
        return None, None
    fields = Fields(body, "tool_choice")
    kind = fields.needed("type", fields.choice("type", ("auto", "any", "none", "tool")))
    alone = fields.flag("disable_parallel_tool_use")
    name = fields.needed("name", fields.text("name")) if kind == "tool" else ""
    return ToolChoice(_CHOICES.get(kind, kind), name), None if alone is None else not alone


def _format(form: dict[str, Any] | None) -> Format | None:
    if form is None:
        return None
    fields = Fields(form, "output_config.format")
    fields.needed("type", fields.choice("type", ("json_schema",)))
    wire = Wire(PROTOCOL, {"format": form})
    return read_schema(fields.any("schema"), "output_config.format.schema", "answer", wire)
