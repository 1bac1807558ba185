"""POST /v1/chat/completions: an answer written, whole or as a stream."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from odar.conversation import Options
from odar.formats import dump_json
from odar.gateway.chat_request import ChatRequest
from odar.gateway.errors import ApiError, openai_body
from odar.gateway.reply import calls_of, choices, extras_of, pieces, thinking_of
from odar.providers.base import Delta
from odar.providers.openai_wire import PROTOCOL, SAID, call_entry
from odar.types import Answer, Candidate, Spend

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
        """Whether a part of the answer has been sent; thinking is none."""

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
