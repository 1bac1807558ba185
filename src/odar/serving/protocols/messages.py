"""POST /v1/messages: read requests in Anthropic's format; write answers as JSON or as a stream; count tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from odar.agents.stream import PROGRESS
from odar.conversation import ChatParameters, Message, Tool, ToolCall, ToolChoice, Wire
from odar.difficulty.features import token_count
from odar.formats import dump_json
from odar.providers.anthropic import PROTOCOL, tool_use
from odar.providers.base import Delta, wire_value
from odar.serving.errors import ApiError, anthropic_body
from odar.serving.protocols.chat_request import (
    ChatRequest,
    Content,
    OutputOptions,
    Part,
    RequestBody,
    read_content,
    read_format,
    read_stop,
    to_content,
)
from odar.serving.protocols.json_body import Count, convert, required
from odar.serving.protocols.reply import ReplyWriter, sse_event, thinking_of
from odar.types import IMAGE_TOKENS, Answer, Candidate, Query, Spend

_OWN_BLOCK_TYPES = frozenset({"tool_result", "tool_use", "thinking", "redacted_thinking"})
"""Types of blocks that `read_content` skips, because `_read_turn` reads them."""
_TOKENIZED_CHARS = 100_000
"""Characters at the beginning of a text whose tokens are counted; the count is extrapolated to the rest."""
_TURN_TOKENS = 4


class MessagesTurn(Struct):
    """One turn; tool results are in turns of the user."""

    role: Literal["user", "assistant", "system"]
    content: Content


class MessagesTool(Struct):
    """A function of the client, or a tool of Anthropic if it has another type."""

    type: str | None = None
    name: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class MessagesToolChoice(Struct):
    """Which tool can or must be called."""

    type: Literal["auto", "any", "none", "tool"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class CountBody(RequestBody, kw_only=True):
    """The body of a request to count tokens."""

    messages: Annotated[list[MessagesTurn], Meta(min_length=1)]
    system: Content | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    stop_sequences: str | list[str] | None = None
    tools: list[MessagesTool] | None = None
    tool_choice: MessagesToolChoice | None = None
    output_config: OutputOptions | None = None
    metadata: dict[str, Any] | None = None


class MessagesBody(CountBody, kw_only=True):
    """The body of a request; `odar.forwarding` lists the further fields that Anthropic upstreams get."""

    max_tokens: Count


def read_messages(body: Any) -> ChatRequest:
    """Read a Messages request; unknown fields are forwarded to Anthropic upstreams only."""
    request = convert(body, MessagesBody)
    turns: list[Message] = []
    if request.system is not None:
        wire = None if isinstance(request.system, str) else Wire(PROTOCOL, {"content": body["system"]})
        turns.append(Message("system", _system_text(request.system, "system"), wire=wire))
    for i, (turn, raw) in enumerate(zip(request.messages, body["messages"], strict=True)):
        turns += _read_turn(turn, raw, f"messages[{i}].content")
    return request.chat_request(Query.from_messages(tuple(turns), _read_parameters(request, body)))


def read_count_tokens(body: Any) -> ChatRequest:
    """Read a request to count tokens, which needs no `max_tokens`."""
    return read_messages({"max_tokens": 1, **body} if isinstance(body, dict) else body)


def count_tokens(query: Query) -> int:
    """The tokens of a conversation with its tools, counted with cl100k_base for every model.

    >>> count_tokens(Query("Is Paris the capital of France?"))
    11
    """
    turns = query.messages
    texts = [turn.text for turn in turns] + [str(call) for turn in turns for call in turn.tool_calls]
    for tool in query.parameters.tools:
        texts.append(f"{tool.name} {tool.description} {dump_json(dict(tool.parameters or {})).decode()}")
    # the tokens of each text, extrapolated from its beginning if it is long
    tokens = sum(token_count(text[:_TOKENIZED_CHARS]) * max(1.0, len(text) / _TOKENIZED_CHARS) for text in texts)
    return round(tokens) + _TURN_TOKENS * len(turns) + IMAGE_TOKENS * len(query.images)


def _read_parameters(request: MessagesBody, body: Mapping[str, Any]) -> ChatParameters:
    config = request.output_config or OutputOptions()
    answer_format = None
    if config.format is not None:
        wire = Wire(PROTOCOL, {"format": body["output_config"]["format"]})
        answer_format = read_format(config.format, "output_config.format", wire)
    choice = request.tool_choice
    one_tool = None if choice is None else choice.disable_parallel_tool_use
    user = (request.metadata or {}).get("user_id")
    return ChatParameters(
        temperature=request.temperature,
        top_p=request.top_p,
        max_tokens=request.max_tokens,
        stop=read_stop(request.stop_sequences),
        tools=tuple(map(_read_tool, request.tools or (), body.get("tools") or (), count())),
        tool_choice=None if choice is None else _read_tool_choice(choice),
        parallel_tools=None if one_tool is None else not one_tool,
        format=answer_format,
        user=user if isinstance(user, str) else None,
        effort=config.effort,
        protocol=PROTOCOL,
        extra=request.further_fields(body),
    )


def _read_tool_choice(choice: MessagesToolChoice) -> ToolChoice:
    if choice.type == "tool":
        return ToolChoice("tool", required(choice.name, "tool_choice.name"))
    return ToolChoice("required" if choice.type == "any" else choice.type)


def _system_text(content: Content, where: str) -> str:
    if isinstance(content, str):
        return content
    return "\n\n".join(required(block.text, f"{where}[{i}].text") for i, block in enumerate(content))


def _read_turn(turn: MessagesTurn, raw: Mapping[str, Any], where: str) -> list[Message]:
    """Read one turn; tool results become separate turns, as in the other protocols."""
    role = turn.role
    content = turn.content
    if role == "system":
        return [Message(role, _system_text(content, where), wire=Wire(PROTOCOL, raw))]
    if isinstance(content, str):
        return [Message(role, content)]
    results: list[Message] = []
    calls: list[ToolCall] = []
    kept: list[Any] = []
    for i, (part, block) in enumerate(zip(content, raw["content"], strict=True)):
        if part.type == "tool_result":
            results.append(_read_tool_result(part, block, f"{where}[{i}]"))
            continue
        if part.type == "tool_use":
            calls.append(_read_tool_call(part, f"{where}[{i}]"))
        if part.type != "thinking" or block.get("signature"):  # thinking without a signature is the gateway's own
            kept.append(block)
    if not kept:
        return results
    text, images, untranslated = read_content(content, where, _OWN_BLOCK_TYPES)
    wire = Wire(PROTOCOL, {"role": role, "content": kept})
    return [*results, Message(role, text, images, tuple(calls), wire=wire, untranslated=untranslated)]


def _read_tool_result(part: Part, block: Mapping[str, Any], where: str) -> Message:
    call_id = required(part.tool_use_id, f"{where}.tool_use_id")
    content = None if part.content is None else to_content(part.content, f"{where}.content")
    text, images, untranslated = read_content(content, f"{where}.content")
    wire = Wire(PROTOCOL, {"role": "user", "content": [block]})
    return Message("tool", text, images, (), call_id, wire, untranslated)


def _read_tool_call(part: Part, where: str) -> ToolCall:
    arguments = convert(part.input or {}, dict[str, Any], f"{where}.input")
    call_id = required(part.id, f"{where}.id")
    return ToolCall(call_id, required(part.name, f"{where}.name"), json.dumps(arguments, ensure_ascii=False))


def _read_tool(tool: MessagesTool, raw: Mapping[str, Any], index: int) -> Tool:
    wire = Wire(PROTOCOL, raw)
    if tool.type not in (None, "custom"):
        return Tool(tool.name or str(tool.type), wire=wire, hosted=str(tool.type))
    return Tool(required(tool.name, f"tools[{index}].name"), tool.description or "", tool.input_schema, wire)


_STOP_REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
"""Anthropic's stop reasons by finish reason; `end_turn` for all others."""


def _stop_fields(candidate: Candidate) -> dict[str, Any]:
    """The stop reason and sequence, as sent if the provider is an Anthropic server."""
    raw = wire_value(candidate.wire, PROTOCOL) or {}
    reason = raw.get("stop_reason") or _STOP_REASONS.get(candidate.finish, "end_turn")
    return {"stop_reason": reason, "stop_sequence": raw.get("stop_sequence")}


def anthropic_usage(spend: Spend) -> dict[str, Any]:
    """Tokens and cost in US dollars of all calls; None for what a provider did not report."""
    usage = spend.usage
    uncached = None if usage.input is None else usage.input - (usage.cached or 0) - (usage.written or 0)
    return {
        "input_tokens": uncached,
        "cache_creation_input_tokens": usage.written or 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
        "cost": spend.cost_usd,
    }


class MessageWriter(ReplyWriter):
    """A message of Anthropic's API."""

    error_body = staticmethod(anthropic_body)

    def __init__(self, request: ChatRequest, trace_id: str) -> None:
        super().__init__(request, trace_id)
        thinking = request.query.parameters.extra.get("thinking")
        self._shows_thinking = isinstance(thinking, dict) and thinking.get("type") != "disabled"
        self._block = -1
        """The index of the open or last block."""
        self._open: str | int | None = None
        """The type of the open block, or the index of its tool call; None if no block is open."""

    def body(self, answer: Answer) -> dict[str, Any]:
        winner = answer.trace.winner
        message = self._message(
            self._content_blocks(winner), _stop_fields(winner), anthropic_usage(answer.trace.spend)
        )
        return message | {"odar": self.odar_object(answer)}

    def keep_alive(self) -> bytes:
        return _event("ping")

    def begin(self) -> bytes:
        stop = {"stop_reason": None, "stop_sequence": None}
        return _event("message_start", message=self._message([], stop, {"input_tokens": 0, "output_tokens": 0}))

    def piece(self, piece: Delta) -> bytes:
        out = self._write_thinking(piece)
        if piece.text:
            out += self._open_block("text", {"type": "text", "text": ""})
            out += self._delta_event(type="text_delta", text=piece.text)
        for index, call in piece.tool_calls:
            name = call.id or f"toolu_msg_{self._trace_id}_{index}"
            out += self._open_block(index, {"type": "tool_use", "id": name, "name": call.name, "input": {}})
            if call.arguments:
                out += self._delta_event(type="input_json_delta", partial_json=call.arguments)
        return out

    def end(self, answer: Answer, *, answered: bool = False) -> bytes:
        winner = answer.trace.winner
        out = b""
        if not answered:
            deltas = (*_thinking_deltas(self._content_blocks(winner)), *self.deltas(winner))
            out += b"".join(map(self.piece, deltas))
        out += self._close_block()
        usage = anthropic_usage(answer.trace.spend)
        out += _event("message_delta", delta=_stop_fields(winner), usage=usage, odar=self.odar_object(answer))
        return out + _event("message_stop")

    def error_event(self, api_error: ApiError) -> bytes:
        return sse_event(anthropic_body(api_error), "error")

    def _message(self, blocks: list[Any], stop: Mapping[str, Any], usage: Mapping[str, Any]) -> dict[str, Any]:
        head = {"id": f"msg_{self._trace_id}", "type": "message", "role": "assistant"}
        return {**head, "model": self._request.model, "content": blocks, **stop, "usage": usage}

    def _content_blocks(self, candidate: Candidate) -> list[dict[str, Any]]:
        """An Anthropic server's content unchanged; for others text, calls, and thinking if requested."""
        if content := (wire_value(candidate.wire, PROTOCOL) or {}).get("content"):
            return list(content)
        blocks = []
        if self._shows_thinking and (thinking := thinking_of(candidate)):
            blocks.append({"type": "thinking", "thinking": thinking, "signature": ""})
        if candidate.text:
            blocks.append({"type": "text", "text": candidate.text})
        return [*blocks, *map(tool_use, self.tool_calls(candidate))]

    def _write_thinking(self, piece: Delta) -> bytes:
        """The events of thinking, its signature, or an encrypted block of it."""
        raw = wire_value(piece.wire, PROTOCOL) or {}
        out = b""
        if piece.thinking and (self._shows_thinking or piece.wire is None):
            part = "progress" if piece.wire is PROGRESS else "thinking"  # a model signs only its own block
            out += self._open_block(part, {"type": "thinking", "thinking": "", "signature": ""})
            out += self._delta_event(type="thinking_delta", thinking=piece.thinking)
        if "delta" in raw and self._open == "thinking":
            out += self._delta_event(**raw["delta"])
        if "content_block" in raw:
            out += self._open_block("redacted", raw["content_block"]) + self._close_block()
        return out

    def _open_block(self, part: str | int, block: dict[str, Any]) -> bytes:
        if self._open == part:
            return b""
        out = self._close_block()
        self._block += 1
        self._open = part
        return out + _event("content_block_start", index=self._block, content_block=block)

    def _close_block(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        return _event("content_block_stop", index=self._block)

    def _delta_event(self, **delta: Any) -> bytes:
        return _event("content_block_delta", index=self._block, delta=delta)


def _thinking_deltas(blocks: list[dict[str, Any]]) -> Iterator[Delta]:
    for block in blocks:
        if block["type"] == "redacted_thinking":
            yield Delta(wire=Wire(PROTOCOL, {"content_block": block}))
        elif block["type"] == "thinking":
            yield Delta(thinking=block["thinking"])
            if signature := block.get("signature"):
                yield Delta(wire=Wire(PROTOCOL, {"delta": {"type": "signature_delta", "signature": signature}}))


def _event(kind: str, **fields: Any) -> bytes:
    return sse_event({"type": kind, **fields}, kind)
