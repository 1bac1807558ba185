"""POST /v1/responses: an answer written, whole or as a stream of response.* events."""

from __future__ import annotations

import time
from typing import Any

from odar.conversation import ToolCall
from odar.formats import dump_json, load_json
from odar.gateway.chat_request import ChatRequest
from odar.gateway.errors import ApiError, openai_body
from odar.gateway.reply import choices, extras_of, pieces, thinking_of
from odar.gateway.responses import PROTOCOL, SHELL
from odar.providers.base import CallDelta, Delta
from odar.types import Answer, Candidate, Spend


def write_response(answer: Answer, ask: ChatRequest) -> dict[str, Any]:
    """A whole response."""
    (winner,) = choices(answer, 1)
    outputs = _outputs(winner, answer.trace.id, ask)
    return _response(ask, answer.trace.id, outputs, int(time.time()), answer, winner)


def usage_of(spend: Spend) -> dict[str, Any] | None:
    """All that was really spent, over all calls, and its cost in US dollars; null where a provider did not say."""
    usage = spend.usage
    if usage.input is None or usage.output is None:
        return None
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
        "cost": spend.cost_usd,
    }


class ResponseStream:
    """A response as OpenAI's response.* events: text and function calls."""

    keepalive = b": odar is working\n\n"

    def __init__(self, ask: ChatRequest, trace_id: str) -> None:
        self._ask = ask
        self._id = trace_id
        self._created = int(time.time())
        self._number = 0
        self._done: list[dict[str, Any]] = []
        """Output items that are whole."""
        self._open: str | int | None = None
        """text, or which call, or none."""
        self._item: dict[str, Any] = {}
        self._name = ""
        """The function that an open call is of, as models know it."""
        self._text = ""

    def begin(self) -> bytes:
        """The empty response."""
        response = _response(self._ask, self._id, [], self._created)
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def piece(self, piece: Delta) -> bytes:
        """A piece of the answer, as it is generated."""
        out = b""
        if piece.thinking:
            if self._open != "thinking":
                out += self._close() + self._enter("thinking", _reasoning(f"{self._id}_{len(self._done)}", None))
                out += self._summary("response.reasoning_summary_part.added", part=_summary_part(""))
            self._text += piece.thinking
            out += self._summary("response.reasoning_summary_text.delta", delta=piece.thinking)
        if piece.text:
            if self._open != "text":
                out += self._close() + self._enter("text", _message(self._id, "", "in_progress"))
                out += self._part("response.content_part.added", part=_text_part(""))
            self._text += piece.text
            out += self._part("response.output_text.delta", delta=piece.text, logprobs=[])
        for call in piece.calls:
            if self._open != call.index:
                made = ToolCall(call.id or f"call_{self._id}_{call.index}", call.name, "")
                out += self._close() + self._enter(call.index, _call(made, self._ask, "in_progress"))
                self._name = call.name
            if call.arguments:
                self._text += call.arguments
                if self._item["type"] == "function_call":
                    out += self._about("response.function_call_arguments.delta", delta=call.arguments)
        return out

    def end(self, answer: Answer) -> bytes:
        """The rest: the whole answer where nothing has been sent, then the finished response."""
        (winner,) = choices(answer, 1)
        out = b""
        if self._open in (None, "thinking") and all(item["type"] == "reasoning" for item in self._done):
            for text in pieces(winner.text):
                out += self.piece(Delta(text))
            for index, call in enumerate(_calls(winner, self._id)):
                part = CallDelta(index, call.id, call.name, call.arguments)
                out += self.piece(Delta(calls=(part,)))
        out += self._close()
        response = _response(self._ask, self._id, self._done, self._created, answer, winner)
        return out + self._event(f"response.{response['status']}", response=response)

    def error(self, refusal: ApiError) -> bytes:
        """What went wrong after the stream had begun."""
        error = openai_body(refusal)["error"]
        failed = _response(self._ask, self._id, self._done, self._created) | {
            "status": "failed",
            "error": {"code": error["code"] or "server_error", "message": error["message"]},
        }
        return self._event("response.failed", response=failed)

    def _enter(self, part: str | int, item: dict[str, Any]) -> bytes:
        self._open, self._item, self._text = part, item, ""
        return self._event("response.output_item.added", output_index=len(self._done), item=item)

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        if self._open == "text":
            item = _message(self._id, self._text, "completed")
            out = self._part("response.output_text.done", text=self._text, logprobs=[])
            out += self._part("response.content_part.done", part=_text_part(self._text))
        elif self._open == "thinking":
            item = {**self._item, "summary": [_summary_part(self._text)]}
            out = self._summary("response.reasoning_summary_text.done", text=self._text)
            out += self._summary("response.reasoning_summary_part.done", part=_summary_part(self._text))
        else:
            item = _call(ToolCall(self._item["call_id"], self._name, self._text), self._ask, "completed")
            out = b""
            if item["type"] == "function_call":
                name = item["name"]
                out = self._about("response.function_call_arguments.done", arguments=self._text, name=name)
            elif item["type"] == "custom_tool_call":
                out = self._about("response.custom_tool_call_input.delta", delta=item["input"])
                out += self._about("response.custom_tool_call_input.done", input=item["input"])
        out += self._event("response.output_item.done", output_index=len(self._done), item=item)
        self._done.append(item)
        self._open = None
        return out

    def _summary(self, kind: str, **fields: Any) -> bytes:
        return self._about(kind, summary_index=0, **fields)

    def _part(self, kind: str, **fields: Any) -> bytes:
        return self._about(kind, content_index=0, **fields)

    def _about(self, kind: str, **fields: Any) -> bytes:
        return self._event(kind, item_id=self._item["id"], output_index=len(self._done), **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        data = dump_json({"type": kind, "sequence_number": self._number, **fields})
        self._number += 1
        return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


def _response(
    ask: ChatRequest,
    trace_id: str,
    output: list[dict[str, Any]],
    created: int,
    answer: Answer | None = None,
    winner: Candidate | None = None,
) -> dict[str, Any]:
    cut = winner is not None and winner.finish in ("length", "content_filter")
    reason = "max_output_tokens" if winner and winner.finish == "length" else "content_filter"
    return {
        "id": f"resp_{trace_id}",
        "object": "response",
        "created_at": created,
        "status": "in_progress" if answer is None else "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": reason} if cut else None,
        "model": ask.model,
        "output": output,
        "previous_response_id": None,
        "truncation": "disabled",
        "usage": usage_of(answer.trace.spend) if answer else None,
        **ask.echo,
        **({"odar": extras_of(answer, ask)} if answer else {}),
    }


def _outputs(candidate: Candidate, trace_id: str, ask: ChatRequest) -> list[dict[str, Any]]:
    thought = thinking_of(candidate)
    thinking = [_reasoning(trace_id, thought)] if thought else []
    text = [_message(trace_id, candidate.text, "completed")] if candidate.text else []
    return [*thinking, *text, *(_call(call, ask, "completed") for call in _calls(candidate, trace_id))]


def _calls(candidate: Candidate, trace_id: str) -> list[ToolCall]:
    """Its tool calls, each with an id that is the same in a stream, a whole response and a kept one."""
    calls = enumerate(candidate.tool_calls)
    return [ToolCall(call.id or f"call_{trace_id}_{i}", call.name, call.arguments) for i, call in calls]


def _reasoning(name: str, text: str | None) -> dict[str, Any]:
    return {"id": f"rs_{name}", "type": "reasoning", "summary": [] if text is None else [_summary_part(text)]}


def _summary_part(text: str) -> dict[str, Any]:
    return {"type": "summary_text", "text": text}


def _message(trace_id: str, text: str, status: str) -> dict[str, Any]:
    content = [_text_part(text)] if status == "completed" else []
    return {"id": f"msg_{trace_id}", "type": "message", "role": "assistant", "status": status, "content": content}


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call(call: ToolCall, ask: ChatRequest, status: str) -> dict[str, Any]:
    """A call in the words of the tool that the client offered: function, namespace, custom or local_shell."""
    head = {"call_id": call.id, "status": status}
    for tool in ask.query.options.tools:
        if tool.name != call.name or tool.wire is None or tool.wire.protocol != PROTOCOL:
            continue
        known = tool.wire.value
        if known["type"] == SHELL:
            action = {"command": [], "env": {}} | _arguments(call) | {"type": "exec"}
            return {"id": f"lsh_{call.id}", "type": "local_shell_call", "action": action, **head}
        if known["type"] == "custom":
            text = _arguments(call).get("input", call.arguments)
            return {"id": f"ctc_{call.id}", "type": "custom_tool_call", "name": call.name, "input": text, **head}
        named = {"name": known["name"], "namespace": known["namespace"], "arguments": call.arguments}
        return {"id": f"fc_{call.id}", "type": "function_call", **named, **head}
    named = {"name": call.name, "arguments": call.arguments}
    return {"id": f"fc_{call.id}", "type": "function_call", **named, **head}


def _arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments of a call; none where the model wrote no JSON object."""
    try:
        value = load_json(call.arguments or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
