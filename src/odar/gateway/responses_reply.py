"""POST /v1/responses: an answer written, whole or as a stream of response.* events."""

from __future__ import annotations

import time
from typing import Any

from odar.conversation import ToolCall
from odar.formats import dump_json
from odar.gateway.chat_request import ChatRequest
from odar.gateway.errors import ApiError, openai_body
from odar.gateway.reply import calls_of, choices, extras_of, pieces
from odar.providers.base import Delta
from odar.types import Answer, Candidate, Usage


def write_response(answer: Answer, ask: ChatRequest) -> dict[str, Any]:
    """A whole response."""
    (winner,) = choices(answer, 1)
    return _response(ask, answer.trace.id, _outputs(winner, answer.trace.id), int(time.time()), answer, winner)


def usage_of(usage: Usage) -> dict[str, Any] | None:
    """All that was really spent, over all calls; null where a provider did not say."""
    if usage.input is None or usage.output is None:
        return None
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
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
        if piece.text:
            if self._open != "text":
                out += self._close() + self._enter("text", _message(self._id, "", "in_progress"))
                out += self._part("response.content_part.added", part=_text_part(""))
            self._text += piece.text
            out += self._part("response.output_text.delta", delta=piece.text, logprobs=[])
        for call in piece.calls:
            if self._open != call.index:
                item = _call(ToolCall(call.id or f"call_{self._id}_{call.index}", call.name, ""), "in_progress")
                out += self._close() + self._enter(call.index, item)
            if call.arguments:
                self._text += call.arguments
                out += self._about("response.function_call_arguments.delta", delta=call.arguments)
        return out

    def end(self, answer: Answer) -> bytes:
        """The rest: the whole answer where nothing has been sent, then the finished response."""
        (winner,) = choices(answer, 1)
        out = b""
        if self._open is None and not self._done:
            for text in pieces(winner.text):
                out += self.piece(Delta(text))
            for index, call in enumerate(calls_of(winner)):
                out += self._close() + self._enter(index, _call(ToolCall(call.id, call.name, ""), "in_progress"))
                self._text = call.arguments
                out += self._about("response.function_call_arguments.delta", delta=call.arguments)
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
        else:
            item = {**self._item, "arguments": self._text, "status": "completed"}
            name = self._item["name"]
            out = self._about("response.function_call_arguments.done", arguments=self._text, name=name)
        out += self._event("response.output_item.done", output_index=len(self._done), item=item)
        self._done.append(item)
        self._open = None
        return out

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
        "usage": usage_of(answer.trace.spend.usage) if answer else None,
        **ask.echo,
        **({"odar": extras_of(answer, ask)} if answer else {}),
    }


def _outputs(candidate: Candidate, trace_id: str) -> list[dict[str, Any]]:
    text = [_message(trace_id, candidate.text, "completed")] if candidate.text else []
    return [*text, *(_call(call, "completed") for call in calls_of(candidate))]


def _message(trace_id: str, text: str, status: str) -> dict[str, Any]:
    content = [_text_part(text)] if status == "completed" else []
    return {"id": f"msg_{trace_id}", "type": "message", "role": "assistant", "status": status, "content": content}


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call(call: ToolCall, status: str) -> dict[str, Any]:
    return {
        "id": f"fc_{call.id}",
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments,
        "status": status,
    }
