"""POST /v1/chat/completions: read requests; write answers as JSON or as a stream."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from odar.conversation import NO_PARAMETERS, ChatParameters, Format, Message, Tool, ToolCall, Wire
from odar.decisions import AnswerList
from odar.policy.fusion import rank
from odar.providers.base import Delta, wire_value
from odar.providers.openai import MESSAGE_FIELDS, PROTOCOL, call_entry
from odar.serving.errors import ApiError, bad_field, openai_body
from odar.serving.protocols.chat_request import (
    AnswerFormat,
    ChatRequest,
    Content,
    Function,
    OpenAIBody,
    read_content,
    read_format,
    read_stop,
    read_tool_choice,
)
from odar.serving.protocols.json_body import Count, convert, required
from odar.serving.protocols.reply import ReplyWriter, openai_usage, sse_event, thinking_of
from odar.types import Answer, Candidate, Query, Trace


class ChatToolCall(Struct):
    """A call of a tool in a turn of the assistant."""

    id: str
    function: Function


class ChatTurn(Struct):
    """One turn of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    tool_calls: list[ChatToolCall] | None = None
    tool_call_id: str | None = None


class ChatTool(Struct):
    """A tool; only functions are supported, because other types exist at one provider only."""

    type: Literal["function"]
    function: Function


class ChatBody(OpenAIBody, kw_only=True):
    """The body of a request; `odar.forwarding` lists the further fields that are forwarded."""

    messages: Annotated[list[ChatTurn], Meta(min_length=1)]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: str | list[str] | None = None
    logprobs: bool | None = None
    tools: list[ChatTool] | None = None
    response_format: AnswerFormat | None = None
    reasoning_effort: str | None = None
    stream_options: dict[str, Any] | None = None


_FIELDS_WITHOUT_PARAMETERS = frozenset({"model", "messages", "stream", "stream_options", "odar"})
_TURN_FIELDS = frozenset(ChatTurn.__struct_fields__)


def read_chat(body: Any) -> ChatRequest:
    """Read a chat-completions request; unknown fields are kept in `parameters.extra`."""
    request = convert(body, ChatBody)
    turns = tuple(map(_read_turn, request.messages, body["messages"], count()))
    parameters = NO_PARAMETERS if body.keys() <= _FIELDS_WITHOUT_PARAMETERS else _read_parameters(request, body)
    include_usage = request.stream_options is not None and request.stream_options.get("include_usage") is True
    return request.chat_request(Query.from_messages(turns, parameters), include_usage=include_usage)


class DecisionBody(ChatBody, kw_only=True):
    """The body of a request for a decision: that of a chat completion, and the answers so far."""

    answers: AnswerList | None = None


def read_decision(body: Any) -> ChatRequest:
    """Read a request for a decision; `body_fields` holds the answers."""
    answers = convert(body, DecisionBody).answers or []
    request = read_chat({name: value for name, value in body.items() if name != "answers"})
    return dataclasses.replace(request, body_fields={"answers": answers})


def _read_parameters(request: ChatBody, body: Mapping[str, Any]) -> ChatParameters:
    if request.top_logprobs is not None and not request.logprobs:
        raise bad_field("top_logprobs", "needs logprobs to be true")
    field = "max_tokens" if request.max_completion_tokens is None else "max_completion_tokens"
    max_tokens = getattr(request, field)
    return ChatParameters(
        temperature=request.temperature,
        top_p=request.top_p,
        max_tokens=max_tokens,
        max_tokens_field="" if max_tokens is None else field,
        stop=read_stop(request.stop),
        seed=request.seed,
        n=request.n or 1,
        top_logprobs=(request.top_logprobs or 0) if request.logprobs else None,
        tools=tuple(
            Tool(tool.function.name, tool.function.description or "", tool.function.parameters, Wire(PROTOCOL, raw))
            for tool, raw in zip(request.tools or (), body.get("tools") or (), strict=True)
        ),
        tool_choice=read_tool_choice(request.tool_choice),
        parallel_tools=request.parallel_tool_calls,
        format=_read_response_format(request.response_format, body.get("response_format")),
        user=request.user,
        effort=request.reasoning_effort,
        extra=request.further_fields(body),
    )


def _read_turn(turn: ChatTurn, raw: Mapping[str, Any], index: int) -> Message:
    role = turn.role
    content = turn.content
    if role == "tool" and turn.tool_call_id is None:
        raise bad_field(f"messages[{index}].tool_call_id", "is missing; send the id of the tool call")
    if content is None and role != "assistant":
        raise bad_field(f"messages[{index}].content", "is missing")
    text, images, untranslated = read_content(content, f"messages[{index}].content")
    plain = isinstance(content, str | None) and role != "developer" and raw.keys() <= _TURN_FIELDS
    return Message(
        role="system" if role == "developer" else role,
        text=text,
        images=images,
        tool_calls=tuple(
            ToolCall(call.id, call.function.name, call.function.arguments or "") for call in turn.tool_calls or ()
        ),
        tool_call_id=turn.tool_call_id,
        wire=None if plain else Wire(PROTOCOL, raw),
        untranslated=untranslated,
    )


def _read_response_format(form: AnswerFormat | None, raw: Any) -> Format | None:
    where = "response_format"
    if form is not None and form.type == "json_schema":
        where = "response_format.json_schema"
        form = required(form.json_schema, where)
        form = AnswerFormat("json_schema", required(form.name, f"{where}.name"), form.schema or {})
    return None if form is None else read_format(form, where, Wire(PROTOCOL, raw))


DONE = b"data: [DONE]\n\n"


class ChatWriter(ReplyWriter):
    """A chat completion."""

    def __init__(self, request: ChatRequest, trace_id: str) -> None:
        super().__init__(request, trace_id)
        self._parameters = request.query.parameters
        self._opened: set[int] = set()
        """Choices whose first chunk has been sent."""

    def body(self, answer: Answer) -> dict[str, Any]:
        return {
            **self._head("chat.completion"),
            "choices": [self._choice(candidate, i) for i, candidate in enumerate(self._chosen(answer.trace))],
            "usage": openai_usage(answer.trace.spend),
            "odar": self.odar_object(answer),
        }

    def keep_alive(self) -> bytes:
        return b": odar is working\n\n"

    def piece(self, piece: Delta, index: int = 0) -> bytes:
        raw: Mapping[str, Any] = wire_value(piece.wire, PROTOCOL) or {}
        raw_delta = raw.get("delta") or {}
        delta = {name: value for name, value in raw_delta.items() if name not in MESSAGE_FIELDS and value}
        if piece.thinking and not raw:
            delta["reasoning_content"] = piece.thinking
        if piece.text:
            delta["content"] = piece.text
        if piece.tool_calls:
            delta["tool_calls"] = [
                {
                    "index": number,
                    **({"id": call.id, "type": "function"} if call.id else {}),
                    "function": {**({"name": call.name} if call.name else {}), "arguments": call.arguments},
                }
                for number, call in piece.tool_calls
            ]
        if not delta and not raw:
            return b""  # a signature of thinking, which this protocol does not have
        return self._open(index) + self._chunk(delta, index, logprobs=self._logprobs(raw))

    def end(self, answer: Answer, *, answered: bool = False) -> bytes:
        out = b""
        chosen = self._chosen(answer.trace)
        for index, candidate in enumerate(() if answered else chosen):
            out += self._open(index)
            out += b"".join(self.piece(delta, index) for delta in self.deltas(candidate))
            if (logprobs := self._candidate_logprobs(candidate)) is not None:
                out += self._chunk({"content": ""}, index, logprobs=logprobs)
        for index, candidate in enumerate(chosen):
            last = {} if index + 1 < len(chosen) else {"odar": self.odar_object(answer)}
            out += self._chunk({}, index, finish=candidate.finish, **last)
        if self._request.include_usage:
            usage = openai_usage(answer.trace.spend)
            out += sse_event({**self._head("chat.completion.chunk"), "choices": [], "usage": usage})
        return out + DONE

    def error_event(self, api_error: ApiError) -> bytes:
        """The event of an error after the stream has begun; no [DONE] follows."""
        return sse_event(openai_body(api_error))

    def _head(self, kind: str) -> dict[str, Any]:
        name = f"chatcmpl-{self._trace_id}"
        return {"id": name, "object": kind, "created": self._created, "model": self._request.model}

    def _open(self, index: int) -> bytes:
        if index in self._opened:
            return b""
        self._opened.add(index)
        return self._chunk({"role": "assistant", "content": ""}, index)

    def _chunk(
        self, delta: Mapping[str, Any], index: int, logprobs: Any = None, finish: str | None = None, **more: Any
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return sse_event({**self._head("chat.completion.chunk"), "choices": [choice], **more})

    def _chosen(self, trace: Trace) -> list[Candidate]:
        """Up to n of the best candidates, the winner first."""
        if self._parameters.n == 1:
            return [trace.winner]
        return [trace.candidates[i] for i in rank(trace.candidates, trace.verdict)[: self._parameters.n]]

    def _choice(self, candidate: Candidate, index: int) -> dict[str, Any]:
        """One choice, with all fields of the message that a provider of this protocol sent."""
        raw: Mapping[str, Any] = (wire_value(candidate.wire, PROTOCOL) or {}).get("message") or {}
        message = {name: value for name, value in raw.items() if name not in MESSAGE_FIELDS}
        if not raw and (thinking := thinking_of(candidate)):
            message["reasoning_content"] = thinking
        message |= {"role": "assistant", "content": candidate.text or None, "refusal": None}
        if raw.get("content") is None and isinstance(raw.get("refusal"), str):
            message |= {"content": None, "refusal": raw["refusal"]}
        if candidate.tool_calls:
            message["tool_calls"] = [call_entry(call) for call in self.tool_calls(candidate)]
        logprobs = self._candidate_logprobs(candidate)
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": candidate.finish}

    def _candidate_logprobs(self, candidate: Candidate) -> dict[str, Any] | None:
        """The log-probabilities of a candidate if they were requested and its provider returned them."""
        if (raw := wire_value(candidate.wire, PROTOCOL)) is not None:
            return self._logprobs(raw)
        if self._parameters.top_logprobs is None:
            return None
        entries = [
            {"token": token.text, "logprob": token.logprob, "bytes": list(token.text.encode()), "top_logprobs": []}
            for token in candidate.tokens
            if token.logprob is not None and not token.control
        ]
        return {"content": entries, "refusal": None} if entries else None

    def _logprobs(self, raw: Mapping[str, Any]) -> dict[str, Any] | None:
        entries: Sequence[Any] | None = (raw.get("logprobs") or {}).get("content")
        limit = self._parameters.top_logprobs
        if limit is None or not entries:
            return None
        # Providers are asked for at least one alternative, because llama.cpp returns nothing without.
        content = [{**entry, "top_logprobs": (entry.get("top_logprobs") or [])[:limit]} for entry in entries]
        return {"content": content, "refusal": None}
