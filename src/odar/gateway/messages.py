"""POST /v1/messages: reads requests in Anthropic's format; writes answers, whole or as a stream."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from odar.agents.flow import PROGRESS
from odar.conversation import Format, Image, Message, Options, Tool, ToolCall, ToolChoice, Wire
from odar.formats import dump_json
from odar.gateway.chat_request import (
    ChatRequest,
    decode,
    read_image,
    read_model,
    read_schema,
    read_tool,
    take_extras,
)
from odar.gateway.errors import ApiError, anthropic_body, bad_field
from odar.gateway.fields import Fields
from odar.gateway.reply import calls_of, choices, extras_of, pieces
from odar.providers.anthropic_wire import PROTOCOL, tool_use
from odar.providers.base import Delta
from odar.types import Answer, Candidate, Query, Spend

_CHOICES = {"auto": "auto", "none": "none", "any": "required"}
_PRIVATE = frozenset({"thinking", "redacted_thinking"})
"""Blocks that only the provider that wrote them can read."""


def read_messages(body: Any) -> ChatRequest:
    """Read a Messages request; unknown fields are sent to Anthropic upstreams only."""
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
    """Read one turn; results of tools become separate turns, as in the other protocols."""
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


_STOP = {"length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
"""Every other finish reason is `end_turn`."""


def write_message(answer: Answer, ask: ChatRequest) -> dict[str, Any]:
    """A whole message."""
    (winner,) = choices(answer, 1)
    return {
        "id": f"msg_{answer.trace.id}",
        "type": "message",
        "role": "assistant",
        "model": ask.model,
        "content": _blocks(winner, ask),
        **_stop(winner),
        "usage": usage_of(answer.trace.spend),
        "odar": extras_of(answer, ask),
    }


def _stop(candidate: Candidate) -> dict[str, Any]:
    """Why it ended, in an Anthropic server's own words if it came from one."""
    said = candidate.wire.value if candidate.wire and candidate.wire.protocol == PROTOCOL else {}
    reason = said.get("stop_reason") or _STOP.get(candidate.finish, "end_turn")
    return {"stop_reason": reason, "stop_sequence": said.get("stop_sequence")}


def usage_of(spend: Spend) -> dict[str, Any]:
    """Tokens and cost in US dollars of all calls; null if a provider did not report them."""
    usage = spend.usage
    fresh = None if usage.input is None else usage.input - (usage.cached or 0) - (usage.written or 0)
    return {
        "input_tokens": fresh,
        "cache_creation_input_tokens": usage.written or 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
        "cost": spend.cost_usd,
    }


class MessageStream:
    """A message as Anthropic's sequence of events."""

    keepalive = b'event: ping\ndata: {"type":"ping"}\n\n'

    def __init__(self, ask: ChatRequest, trace_id: str) -> None:
        self._ask = ask
        self._id = f"msg_{trace_id}"
        self._block = -1
        """The number of the block that is open, or was last."""
        self._open: str | int | None = None
        """text, thinking, or which tool call, or none."""
        self._answered = False
        """Whether a part of the answer has been sent."""
        self._shows_thinking = _shows_thinking(ask)

    def begin(self) -> bytes:
        """The empty message; nothing has been counted yet."""
        message: dict[str, Any] = {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._ask.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }
        return _event("message_start", message=message)

    def piece(self, piece: Delta) -> bytes:
        """A piece of the answer, as it is generated."""
        out = self._thinking(piece)
        if piece.text:
            out += self._enter("text", {"type": "text", "text": ""})
            out += self._delta(type="text_delta", text=piece.text)
        for call in piece.calls:
            name = call.id or f"toolu_{self._id}_{call.index}"
            out += self._enter(call.index, {"type": "tool_use", "id": name, "name": call.name, "input": {}})
            if call.arguments:
                out += self._delta(type="input_json_delta", partial_json=call.arguments)
        return out

    def end(self, answer: Answer) -> bytes:
        """The rest: the whole answer where nothing has been sent, then how it ended and what it cost."""
        (winner,) = choices(answer, 1)
        out = b""
        if not self._answered:
            for block in _blocks(winner, self._ask):
                out += self._thinking(_thinking_delta(block))
                if block["type"] == "thinking" and block.get("signature"):
                    out += self._delta(type="signature_delta", signature=block["signature"])
            for text in pieces(winner.text):
                out += self.piece(Delta(text))
            for number, call in enumerate(calls_of(winner)):
                block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
                out += self._enter(number, block) + self._delta(
                    type="input_json_delta", partial_json=call.arguments
                )
        out += self._leave()
        usage, extras = usage_of(answer.trace.spend), extras_of(answer, self._ask)
        out += _event("message_delta", delta=_stop(winner), usage=usage, odar=extras)
        return out + _event("message_stop")

    def error(self, refusal: ApiError) -> bytes:
        """What went wrong after the stream had begun."""
        return b"event: error\ndata: " + dump_json(anthropic_body(refusal)) + b"\n\n"

    def _thinking(self, piece: Delta) -> bytes:
        """Thinking, its signature, or a block of it that the provider encrypted."""
        said = piece.wire.value if piece.wire is not None and piece.wire.protocol == PROTOCOL else None
        out = b""
        if piece.thinking and (self._shows_thinking or piece.wire is None):
            part = "progress" if piece.wire is PROGRESS else "thinking"  # what a model signs is a block of its own
            out += self._enter(part, {"type": "thinking", "thinking": "", "signature": ""})
            out += self._delta(type="thinking_delta", thinking=piece.thinking)
        if said is not None and "delta" in said and self._open == "thinking":
            out += self._delta(**said["delta"])
        if said is not None and "content_block" in said:
            out += self._enter("redacted", said["content_block"]) + self._leave()
        return out

    def _enter(self, part: str | int, block: dict[str, Any]) -> bytes:
        if self._open == part:
            return b""
        out = self._leave()
        self._block += 1
        self._open = part
        self._answered = self._answered or part not in ("progress", "thinking", "redacted")
        return out + _event("content_block_start", index=self._block, content_block=block)

    def _leave(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        return _event("content_block_stop", index=self._block)

    def _delta(self, **delta: Any) -> bytes:
        return _event("content_block_delta", index=self._block, delta=delta)


def _blocks(candidate: Candidate, ask: ChatRequest) -> list[dict[str, Any]]:
    """The content as an Anthropic server sent it; from other servers text, calls, and thinking if requested."""
    wire = candidate.wire
    if wire is not None and wire.protocol == PROTOCOL and wire.value.get("content"):
        return list(wire.value["content"])
    said = wire.value.get("message") or {} if wire is not None else {}
    thought = said.get("reasoning_content") or said.get("reasoning") if _shows_thinking(ask) else None
    thinking = [{"type": "thinking", "thinking": str(thought), "signature": ""}] if thought else []
    text = [{"type": "text", "text": candidate.text}] if candidate.text else []
    return [*thinking, *text, *map(tool_use, calls_of(candidate))]


def _shows_thinking(ask: ChatRequest) -> bool:
    """Whether the client asked for thinking, so that it can show thinking of any model."""
    wanted = ask.query.options.extra.get("thinking")
    return isinstance(wanted, dict) and wanted.get("type") != "disabled"


def _thinking_delta(block: dict[str, Any]) -> Delta:
    if block["type"] == "redacted_thinking":
        return Delta(wire=Wire(PROTOCOL, {"content_block": block}))
    return Delta(thinking=block["thinking"] if block["type"] == "thinking" else "")


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + dump_json({"type": kind, **fields}) + b"\n\n"
