"""POST /v1/messages: an answer in Anthropic's shape, whole or as a stream."""

from __future__ import annotations

from typing import Any

from odar.agents.flow import PROGRESS
from odar.conversation import Wire
from odar.formats import dump_json
from odar.gateway.chat_request import ChatRequest
from odar.gateway.errors import ApiError, anthropic_body
from odar.gateway.reply import calls_of, choices, extras_of, pieces
from odar.providers.anthropic_wire import PROTOCOL, tool_use
from odar.providers.base import Delta
from odar.types import Answer, Candidate, Spend

_STOP = {"length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
"""Every other end is the end of the turn."""


def write_message(answer: Answer, ask: ChatRequest) -> dict[str, Any]:
    """A whole message."""
    (winner,) = choices(answer, 1)
    said = winner.wire.value if winner.wire and winner.wire.protocol == PROTOCOL else {}
    return {
        "id": f"msg_{answer.trace.id}",
        "type": "message",
        "role": "assistant",
        "model": ask.model,
        "content": _blocks(winner, ask),
        "stop_reason": said.get("stop_reason") or _STOP.get(winner.finish, "end_turn"),
        "stop_sequence": said.get("stop_sequence"),
        "usage": usage_of(answer.trace.spend),
        "odar": extras_of(answer, ask),
    }


def usage_of(spend: Spend) -> dict[str, Any]:
    """All that was really spent, over all calls, and its cost in US dollars; null where a provider did not say."""
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
            block = {"type": "tool_use", "id": call.id or f"toolu_{self._id}", "name": call.name, "input": {}}
            out += self._enter(call.index, block)
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
        stop = {"stop_reason": _STOP.get(winner.finish, "end_turn"), "stop_sequence": None}
        usage = usage_of(answer.trace.spend)
        return (
            out
            + _event("message_delta", delta=stop, usage=usage, odar=extras_of(answer, self._ask))
            + _event("message_stop")
        )

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
    """The content as an Anthropic server sent it; of another one text, calls, and thinking that was asked for."""
    wire = candidate.wire
    if wire is not None and wire.protocol == PROTOCOL and wire.value.get("content"):
        return list(wire.value["content"])
    said = wire.value.get("message") or {} if wire is not None else {}
    thought = said.get("reasoning_content") or said.get("reasoning") if _shows_thinking(ask) else None
    thinking = [{"type": "thinking", "thinking": str(thought), "signature": ""}] if thought else []
    text = [{"type": "text", "text": candidate.text}] if candidate.text else []
    return [*thinking, *text, *map(tool_use, calls_of(candidate))]


def _shows_thinking(ask: ChatRequest) -> bool:
    """Whether the client asked for thinking, and can show that of any model."""
    wanted = ask.query.options.extra.get("thinking")
    return isinstance(wanted, dict) and wanted.get("type") != "disabled"


def _thinking_delta(block: dict[str, Any]) -> Delta:
    if block["type"] == "redacted_thinking":
        return Delta(wire=Wire(PROTOCOL, {"content_block": block}))
    return Delta(thinking=block["thinking"] if block["type"] == "thinking" else "")


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + dump_json({"type": kind, **fields}) + b"\n\n"
