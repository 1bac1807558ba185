"""POST /v1/chat/completions: requests read; answers written, whole or as a stream."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from odar.conversation import NO_OPTIONS, Format, Image, Message, Options, Tool, ToolCall, Wire
from odar.formats import dump_json
from odar.gateway.chat_request import (
    ChatRequest,
    read_image,
    read_model,
    read_schema,
    read_tool,
    read_tool_choice,
    take_extras,
)
from odar.gateway.errors import ApiError, bad_field, openai_body
from odar.gateway.fields import Fields
from odar.gateway.reply import calls_of, choices, extras_of, pieces, thinking_of
from odar.providers.base import Delta
from odar.providers.openai_wire import PROTOCOL, SAID, call_entry
from odar.types import Answer, Candidate, Query, Spend

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


DONE = b"data: [DONE]\n\n"


def write_chat(answer: Answer, ask: ChatRequest) -> dict[str, Any]:
    """A whole chat completion."""
    options = ask.query.options
    return {
        "id": f"chatcmpl-{answer.trace.id}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": ask.model,
        "choices": [_choice(c, i, options) for i, c in enumerate(choices(answer, options.n))],
        "usage": usage_of(answer.trace.spend),
        "odar": extras_of(answer, ask),
    }


def usage_of(spend: Spend) -> dict[str, Any] | None:
    """All that was really spent, over all calls, and its cost in US dollars; null where a provider did not say."""
    usage = spend.usage
    if usage.input is None or usage.output is None:
        return None
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
        "cost": spend.cost_usd,
    }


class ChatStream:
    """A chat completion as server-sent events."""

    keepalive = b": odar is working\n\n"

    def __init__(self, ask: ChatRequest, trace_id: str) -> None:
        self._ask = ask
        self._head = {
            "id": f"chatcmpl-{trace_id}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": ask.model,
        }
        self._opened = False
        self._started = False
        """Whether a part of the answer has been sent; thinking does not count."""

    def begin(self) -> bytes:
        """Nothing: the first chunk comes with the first text."""
        return b""

    def piece(self, piece: Delta) -> bytes:
        """A piece of the answer, as it is generated."""
        said: Mapping[str, Any] = piece.wire.value if piece.wire and piece.wire.protocol == PROTOCOL else {}
        delta = {name: value for name, value in (said.get("delta") or {}).items() if name not in SAID and value}
        if piece.thinking and not said:
            delta["reasoning_content"] = piece.thinking
        if piece.text:
            delta["content"] = piece.text
        if piece.calls:
            delta["tool_calls"] = [
                {
                    "index": call.index,
                    **({"id": call.id, "type": "function"} if call.id else {}),
                    "function": {**({"name": call.name} if call.name else {}), "arguments": call.arguments},
                }
                for call in piece.calls
            ]
        if not delta and not said:
            return b""  # a signature of thinking, for which this protocol has no place
        opening = b"" if self._opened else self._chunk({"role": "assistant", "content": ""})
        self._opened = True
        self._started = self._started or bool(piece.text or piece.calls)
        return opening + self._chunk(delta, logprobs=_logprobs(said, self._ask.query.options))

    def end(self, answer: Answer) -> bytes:
        """The rest: the whole answer where nothing has been sent, then how it ended and what it cost."""
        out = b""
        chosen = choices(answer, self._ask.query.options.n)
        if not self._started:
            for index, candidate in enumerate(chosen):
                out += b"".join(self._whole(candidate, index))
        for index, candidate in enumerate(chosen):
            last = {} if index + 1 < len(chosen) else {"odar": extras_of(answer, self._ask)}
            out += self._chunk({}, index, finish=candidate.finish, **last)
        if self._ask.include_usage:
            usage = usage_of(answer.trace.spend)
            out += b"data: " + dump_json({**self._head, "choices": [], "usage": usage}) + b"\n\n"
        return out + DONE

    def error(self, refusal: ApiError) -> bytes:
        """What went wrong after the stream had begun; no [DONE], because it is not."""
        return b"data: " + dump_json(openai_body(refusal)) + b"\n\n"

    def _whole(self, candidate: Candidate, index: int) -> Iterator[bytes]:
        """A finished candidate in chunks, token by token where log-probabilities were asked for."""
        yield self._chunk({"role": "assistant", "content": ""}, index)
        entries = _entries(candidate, self._ask.query.options)
        if entries and "".join(entry["token"] for entry in entries) == candidate.text:
            for entry in entries:
                yield self._chunk(
                    {"content": entry["token"]}, index, logprobs={"content": [entry], "refusal": None}
                )
        else:
            for piece in pieces(candidate.text):
                yield self._chunk({"content": piece}, index)
            if entries:
                yield self._chunk({"content": ""}, index, logprobs={"content": entries, "refusal": None})
        for number, call in enumerate(calls_of(candidate)):
            yield self._chunk({"tool_calls": [{"index": number, **call_entry(call)}]}, index)

    def _chunk(
        self,
        delta: Mapping[str, Any],
        index: int = 0,
        *,
        logprobs: Any = None,
        finish: str | None = None,
        **more: Any,
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return b"data: " + dump_json({**self._head, "choices": [choice], **more}) + b"\n\n"


def _choice(candidate: Candidate, index: int, options: Options) -> dict[str, Any]:
    """One choice: as the provider sent it where it spoke this protocol, so that nothing it said is lost."""
    said: Mapping[str, Any] = {}
    if candidate.wire is not None and candidate.wire.protocol == PROTOCOL:
        said = candidate.wire.value.get("message") or {}
    message = {name: value for name, value in said.items() if name not in SAID}
    if thought := thinking_of(candidate):
        message.setdefault("reasoning_content", thought)
    refused = said.get("content") is None and isinstance(said.get("refusal"), str)
    message |= {"role": "assistant", "content": None if refused else candidate.text or None}
    message["refusal"] = said["refusal"] if refused else None
    if candidate.tool_calls:
        message["tool_calls"] = [call_entry(call) for call in calls_of(candidate)]
    entries = _entries(candidate, options)
    return {
        "index": index,
        "message": message,
        "logprobs": None if entries is None else {"content": entries, "refusal": None},
        "finish_reason": candidate.finish,
    }


def _entries(candidate: Candidate, options: Options) -> list[Any] | None:
    """The winner's log-probabilities, where they were asked for and its provider has them."""
    if options.top_logprobs is None:
        return None
    if candidate.wire is not None and candidate.wire.protocol == PROTOCOL:
        logprobs = _logprobs(candidate.wire.value, options)
        return logprobs["content"] if logprobs else None
    known = [token for token in candidate.tokens if token.logprob is not None and not token.control]
    return [
        {"token": t.text, "logprob": t.logprob, "bytes": list(t.text.encode()), "top_logprobs": []} for t in known
    ] or None


def _logprobs(said: Mapping[str, Any], options: Options) -> dict[str, Any] | None:
    content: Sequence[Any] | None = (said.get("logprobs") or {}).get("content")
    if options.top_logprobs is None or not content:
        return None
    # We ask for one alternative even where the client wants none: llama.cpp gives nothing below that.
    count = options.top_logprobs
    return {
        "content": [{**e, "top_logprobs": (e.get("top_logprobs") or [])[:count]} for e in content],
        "refusal": None,
    }
