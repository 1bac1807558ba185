"""The Messages format: a `Request` to a JSON body, a JSON reply or a stream to a `Reply`. Pure.

Tools, tool choice, tool results and JSON schemas are translated between OpenAI's format and Anthropic's.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from odar.conversation import Format, Image, Message, Options, Tool, ToolCall, Wire
from odar.formats import load_json
from odar.forwarding import merged
from odar.providers.base import CallDelta, Completion, Delta, Reply, Request, check_translatable
from odar.providers.response import count, string
from odar.types import Usage

PROTOCOL = "anthropic"
DEFAULT_MAX_TOKENS = 16_000
"""The API requires a limit; this one is used if the client sets none. Every Claude since 4 can write as much."""
JSON_ONLY = "Reply with one JSON object and nothing else."
"""The API supports schemas, but has no format for any JSON object."""
FINISH = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
    "tool_use": "tool_calls",
}
"""Every other stop reason is an ordinary stop."""
_TOOL_CHOICE = {"auto": "auto", "none": "none", "required": "any", "tool": "tool"}


Thoughts = Mapping[str, list[Any]]
"""Thinking blocks by the id of the tool call that they led to."""


def messages_body(request: Request, *, stream: bool = False, thoughts: Thoughts | None = None) -> dict[str, Any]:
    """The body of a Messages request; `thoughts` go back into turns of clients whose protocol cannot hold them.

    >>> body = messages_body(Request("claude", (Message("system", "Be brief."), Message("user", "2 + 2?"))))
    >>> body["system"], body["messages"]
    ('Be brief.', [{'role': 'user', 'content': '2 + 2?'}])
    """
    sampling, quirks, options = request.sampling, request.quirks, request.options
    check_translatable(request.messages, PROTOCOL)
    wanted: dict[str, Any] = {
        "model": request.model,
        "messages": _turns(request.messages, thoughts or {}),
        "system": _system(request.messages, options.format),
        "max_tokens": sampling.max_tokens or DEFAULT_MAX_TOKENS,
        # The API refuses stop sequences of white space only, such as the paper's "\n\n".
        "stop_sequences": [sequence for sequence in sampling.stop if sequence.strip()] or None,
        "tools": [_tool(tool) for tool in options.tools] or None,
        "tool_choice": _tool_choice(options),
        "output_config": _output_config(options),
        "metadata": {"user_id": options.user} if options.user else None,
        "stream": True if stream else None,
    }
    # Claude 4.5 and later refuse temperature and top_p together, and Anthropic advises to set one of them only:
    # the one that the client set, else temperature. A catalogue entry that wants top_p drops temperature.
    if sampling.top_p is not None and (sampling.temperature is None or _wants_top_p(options)):
        wanted["top_p"] = sampling.top_p
    elif sampling.temperature is not None and not (_thinks(options) or "thinking" in quirks.extra):
        wanted["temperature"] = min(sampling.temperature, 1.0)  # where the API's scale ends
    body = {name: value for name, value in wanted.items() if value is not None and name not in quirks.drop}
    body |= quirks.extra
    body = merged(options.extra, body) if options.protocol == PROTOCOL else body
    if (body.get("thinking") or {}).get("type") == "enabled" and _calls_without_thinking(body["messages"]):
        del body["thinking"]  # the API refuses it in a tool loop that began without it
    return body


def read_message(payload: Mapping[str, Any]) -> Reply:
    """A whole Messages reply.

    >>> read_message({"content": [{"type": "text", "text": "4"}], "stop_reason": "max_tokens"}).completions
    (Completion(text='4', tokens=(), finish='length', tool_calls=()),)
    """
    blocks = payload["content"]
    calls = [
        ToolCall(string(block["id"]), string(block["name"]), json.dumps(block["input"], ensure_ascii=False))
        for block in blocks
        if block["type"] == "tool_use"
    ]
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    completion = Completion(text, (), _finish(payload.get("stop_reason")), tuple(calls), Wire(PROTOCOL, payload))
    thought = any(_is_thinking(block) for block in blocks)
    return _reply(completion, payload.get("usage") or {}, payload.get("model"), thought=thought)


class StreamedMessage:
    """A streamed Messages reply, put together event by event."""

    def __init__(self) -> None:
        self.finished = False
        self._texts: list[str] = []
        self._calls: list[list[CallDelta]] = []
        self._start: Mapping[str, Any] | None = None
        self._usage: dict[str, Any] = {}
        self._stop_reason: str | None = None
        self._stop_sequence: str | None = None
        self._blocks: list[dict[str, Any]] = []
        """The content as it came, in its order."""

    def feed(self, payload: Mapping[str, Any]) -> Delta:
        """Add one event, and return what it adds to the answer."""
        match payload.get("type"):
            case "message_start":
                self._start = payload["message"]
                self._usage |= self._start.get("usage") or {}
            case "content_block_start":
                return self._open(payload["content_block"])
            case "content_block_delta":
                return self._add(payload["delta"])
            case "message_delta":
                self._stop_reason = payload["delta"].get("stop_reason")
                self._stop_sequence = payload["delta"].get("stop_sequence")
                # Counts here are totals, not increments; a null one says nothing new.
                self._usage |= {k: v for k, v in (payload.get("usage") or {}).items() if v is not None}
            case "message_stop":
                self.finished = True
        return Delta()

    def reply(self) -> Reply:
        """The whole reply."""
        if self._start is None:
            raise ValueError("no message_start")
        calls = (
            ToolCall(parts[0].id, parts[0].name, "".join(part.arguments for part in parts) or "{}")
            for parts in self._calls
        )
        called = tuple(calls)
        inputs = iter(called)
        content = [tool_use(next(inputs)) if b["type"] == "tool_use" else b for b in self._blocks]
        stop = {"stop_reason": self._stop_reason, "stop_sequence": self._stop_sequence}
        wire = Wire(PROTOCOL, {"content": content, **stop})
        completion = Completion("".join(self._texts), (), _finish(self._stop_reason), called, wire)
        thought = any(map(_is_thinking, content))
        return _reply(completion, self._usage, self._start.get("model"), thought=thought)

    def _open(self, block: Mapping[str, Any]) -> Delta:
        self._blocks.append(dict(block))
        if block["type"] == "redacted_thinking":
            return Delta(wire=Wire(PROTOCOL, {"content_block": block}))
        if block["type"] != "tool_use":
            return Delta()
        self._calls.append([CallDelta(len(self._calls), string(block["id"]), string(block["name"]))])
        return Delta(calls=(self._calls[-1][0],))

    def _add(self, delta: Mapping[str, Any]) -> Delta:
        match delta.get("type"):
            case "text_delta":
                if not isinstance(text := delta["text"], str):
                    raise TypeError(f"text is a {type(text).__name__}")  # reported as a malformed answer
                self._texts.append(text)
                self._extend("text", text)
                return Delta(text)
            case "thinking_delta":
                self._extend("thinking", thought := string(delta["thinking"]))
                return Delta(thinking=thought)
            case "signature_delta":
                self._blocks[-1]["signature"] = string(delta["signature"])
                return Delta(wire=Wire(PROTOCOL, {"delta": delta}))
            case "input_json_delta":
                part = CallDelta(len(self._calls) - 1, arguments=delta["partial_json"])
                self._calls[-1].append(part)
                return Delta(calls=(part,))
        return Delta()

    def _extend(self, kind: str, text: str) -> None:
        """Append to the open block; open one if the server did not."""
        if not self._blocks or self._blocks[-1]["type"] != kind:
            self._blocks.append({"type": kind})
        block = self._blocks[-1]
        block[kind] = string(block.get(kind)) + text


def _reply(completion: Completion, usage: Mapping[str, Any], model: Any, *, thought: bool) -> Reply:
    return Reply((completion,), _usage(usage, thought=thought), model if isinstance(model, str) else "")


def _finish(stop_reason: str | None) -> str:
    return FINISH.get(stop_reason or "", "stop")


def _usage(usage: Mapping[str, Any], *, thought: bool) -> Usage:
    fresh = count(usage.get("input_tokens"))
    cached = count(usage.get("cache_read_input_tokens")) or 0
    written = count(usage.get("cache_creation_input_tokens")) or 0
    hourly = count((usage.get("cache_creation") or {}).get("ephemeral_1h_input_tokens"))
    output = count(usage.get("output_tokens"))
    reasoning = count((usage.get("output_tokens_details") or {}).get("thinking_tokens"))
    if reasoning is None and output is not None and not thought:
        reasoning = 0
    return Usage(
        input=None if fresh is None else fresh + cached + written,
        cached=None if fresh is None else cached,
        output=output,
        reasoning=reasoning,
        written=None if fresh is None else written,
        written_1h=None if fresh is None else hourly if hourly is not None or written else 0,
        unpriced=_has_surcharge(usage),
    )


def _has_surcharge(usage: Mapping[str, Any]) -> bool:
    """Whether the bill includes more than tokens at their ordinary price."""
    tools = usage.get("server_tool_use") or {}
    return (
        any(count(value) for value in tools.values())
        or usage.get("service_tier") in ("priority", "batch")
        or usage.get("speed") == "fast"
        or usage.get("inference_geo") not in (None, "not_available", "global")
    )


def _is_thinking(block: Mapping[str, Any]) -> bool:
    return block.get("type") in ("thinking", "redacted_thinking")


# ── turns ───────────────────────────────────────────────────────────────────────────────────────────────────


def _system(messages: Iterable[Message], form: Format | None) -> Any:
    """The system prompt: text, or blocks where the client wrote blocks."""
    turns = [message for message in messages if message.role == "system" and not _in_place(message)]
    if form is not None and form.schema is None:
        turns.append(Message("system", JSON_ONLY))
    if not any(turn.wire is not None and turn.wire.protocol == PROTOCOL for turn in turns):
        return "\n\n".join(turn.text for turn in turns) or None
    blocks: list[Any] = []
    for turn in turns:
        own = turn.wire is not None and turn.wire.protocol == PROTOCOL
        blocks += turn.wire.value["content"] if turn.wire and own else [{"type": "text", "text": turn.text}]
    return blocks


def _in_place(message: Message) -> bool:
    """Whether a system turn came between other turns in this protocol, where it stays."""
    return message.wire is not None and message.wire.protocol == PROTOCOL and "role" in message.wire.value


def _turns(messages: Iterable[Message], thoughts: Thoughts) -> list[dict[str, Any]]:
    """The conversation; results of tools, and what the user adds to them, share one turn as the API wants it."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system" and not _in_place(message):
            continue
        turn = _turn(message)
        if message.role == "assistant":
            turn = _with_thinking(turn, message, thoughts)
        if turns and turns[-1]["role"] == turn["role"] and _has_result(turns[-1]):
            turns[-1]["content"] = [*turns[-1]["content"], *_blocks(turn["content"])]
        else:
            turns.append(turn)
    return turns


def _turn(message: Message) -> dict[str, Any]:
    if message.wire is not None and message.wire.protocol == PROTOCOL:
        return dict(message.wire.value)
    if message.role == "tool":
        images = [_image(image) for image in message.images]
        content: Any = [{"type": "text", "text": message.text}, *images] if images else message.text
        result = {"type": "tool_result", "tool_use_id": message.tool_call_id or "", "content": content}
        return {"role": "user", "content": [result]}
    if not message.images and not message.tool_calls:
        return {"role": message.role, "content": message.text}
    text = [{"type": "text", "text": message.text}] if message.text else []
    calls = map(tool_use, message.tool_calls)
    return {"role": message.role, "content": [*map(_image, message.images), *text, *calls]}


def _with_thinking(turn: dict[str, Any], message: Message, thoughts: Thoughts) -> dict[str, Any]:
    """An assistant's turn with what it thought before its tool calls, and without unsigned thinking.

    ODAR shows other models' thinking to clients of this protocol; the API refuses it in return.
    """
    content = turn["content"]
    if isinstance(content, list):
        signed = [b for b in content if b.get("type") != "thinking" or b.get("signature")]
        content = turn["content"] = signed or [{"type": "text", "text": message.text or "…"}]
    missing = not isinstance(content, list) or not any(map(_is_thinking, content))
    before = next((thoughts[call.id] for call in message.tool_calls if call.id in thoughts), None)
    return {**turn, "content": [*before, *_blocks(content)]} if missing and before else turn


def _calls_without_thinking(turns: list[dict[str, Any]]) -> bool:
    """Whether the last turns are a tool loop whose calls came without thinking."""
    last = next((turn["content"] for turn in reversed(turns) if turn["role"] == "assistant"), None)
    loop = bool(turns) and _has_result(turns[-1])
    return loop and isinstance(last, list) and bool(last) and not _is_thinking(last[0])


def tool_use(call: ToolCall) -> dict[str, Any]:
    """The block of a tool call.

    >>> tool_use(ToolCall("t1", "weather", '{"city": "Rome"}'))
    {'type': 'tool_use', 'id': 't1', 'name': 'weather', 'input': {'city': 'Rome'}}
    """
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.arguments)}


def _has_result(turn: Mapping[str, Any]) -> bool:
    content = turn["content"]
    return isinstance(content, list) and any(block.get("type") == "tool_result" for block in content)


def _blocks(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _image(image: Image) -> dict[str, Any]:
    if image.url:
        return {"type": "image", "source": {"type": "url", "url": image.url}}
    data = base64.b64encode(image.data).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": data}}


def _input(arguments: str) -> Any:
    """A call's arguments as the object the API wants; anything else is kept under the name `arguments`."""
    try:
        value = load_json(arguments or "{}")
    except ValueError:
        value = arguments
    return value if isinstance(value, dict) else {"arguments": value}


# ── tools ───────────────────────────────────────────────────────────────────────────────────────────────────


def _tool(tool: Tool) -> Mapping[str, Any]:
    if tool.wire is not None and tool.wire.protocol == PROTOCOL:
        return tool.wire.value
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "input_schema": tool.parameters or {"type": "object", "properties": {}}}


def _tool_choice(options: Options) -> dict[str, Any] | None:
    choice = options.tool_choice
    if not options.tools or (choice is None and options.parallel_tools is None):
        return None
    chosen: dict[str, Any] = {"type": _TOOL_CHOICE[choice.mode] if choice else "auto"}
    if choice and choice.mode == "tool":
        chosen["name"] = choice.name
    if options.parallel_tools is not None and chosen["type"] != "none":
        chosen["disable_parallel_tool_use"] = not options.parallel_tools
    return chosen


def _output_config(options: Options) -> dict[str, Any] | None:
    config: dict[str, Any] = {"effort": options.effort} if options.effort else {}
    if (form := options.format) is not None and form.schema is not None:
        own = form.wire is not None and form.wire.protocol == PROTOCOL
        config["format"] = form.wire.value["format"] if form.wire and own else _json_schema(form)
    return config or None


def _json_schema(form: Format) -> dict[str, Any]:
    return {"type": "json_schema", "schema": form.schema}


def _thinks(options: Options) -> bool:
    """Whether the client switched thinking on, with which the API takes no temperature but its own."""
    return options.temperature is None and options.protocol == PROTOCOL and "thinking" in options.extra


def _wants_top_p(options: Options) -> bool:
    return options.top_p is not None and options.temperature is None
