"""The Anthropic Messages API: no log-probabilities, and one sample a request.

Tools, tool choice, tool results and JSON schemas are translated between OpenAI's format and Anthropic's.
"""

from __future__ import annotations

import base64
import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from odar.conversation import Format, Image, Message, Options, Tool, ToolCall, Wire
from odar.formats import load_json
from odar.providers.base import (
    CallDelta,
    Completion,
    Delta,
    OnDelta,
    Reply,
    Request,
    check_translatable,
    wire_value,
)
from odar.providers.http import HttpProvider
from odar.providers.response import count, string
from odar.types import Usage

_VERSION = "2023-06-01"
_THOUGHTS = 2_000
"""Number of tool calls whose thinking is remembered until their results arrive."""
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


class AnthropicProvider(HttpProvider):
    """Claude models. `base_url` may end in /v1 or not.

    >>> AnthropicProvider("anthropic").name
    'anthropic'
    """

    models_path = "/v1/models?limit=1000"

    def __init__(
        self, name: str, base_url: str = "https://api.anthropic.com", api_key: str | None = None, **options: Any
    ) -> None:
        super().__init__(name, base_url.rstrip("/").removesuffix("/v1"), api_key, **options)
        self._thoughts: OrderedDict[str, list[Any]] = OrderedDict()
        self._betas = [value for header, value in self._headers.items() if header == "anthropic-beta"]

    def auth(self, key: str) -> dict[str, str]:
        """Return the headers that identify us."""
        return {"anthropic-version": _VERSION} | ({"x-api-key": key} if key else {})

    async def complete(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        """Answer with one sample, whatever `n` is; `on_delta` receives the text while it is generated."""
        return await self.refusals.ask(request, lambda request: self._send(request, on_delta))

    async def _send(self, request: Request, on_delta: OnDelta | None) -> Reply:
        body = messages_body(request, stream=on_delta is not None, thoughts=self._thoughts)
        betas = ",".join([*self._betas, *request.options.betas])
        reply = await self.post(
            "/v1/messages",
            body,
            request,
            read_message,
            StreamedMessage,
            on_delta,
            {"anthropic-beta": betas} if request.options.betas else {},
        )
        self._keep_thoughts(reply)
        return reply

    def _keep_thoughts(self, reply: Reply) -> None:
        """Remember the thinking before a tool call.

        The API requires it with the tool's result, and clients of other protocols cannot send it.
        """
        for completion in reply.completions:
            blocks = completion.wire.value["content"] if completion.wire else []
            thoughts = [block for block in blocks if block["type"] in ("thinking", "redacted_thinking")]
            for call in completion.tool_calls if thoughts else ():
                self._thoughts[call.id] = thoughts
        while len(self._thoughts) > _THOUGHTS:
            self._thoughts.popitem(last=False)


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
    # With thinking switched on, the API takes no temperature but its own.
    own = options.temperature is None
    thinks = "thinking" in quirks.extra or (own and options.protocol == PROTOCOL and "thinking" in options.extra)
    if sampling.top_p is not None and (sampling.temperature is None or (own and options.top_p is not None)):
        wanted["top_p"] = sampling.top_p
    elif sampling.temperature is not None and not thinks:
        wanted["temperature"] = min(sampling.temperature, 1.0)  # where the API's scale ends
    body = {name: value for name, value in wanted.items() if value is not None and name not in quirks.drop}
    body |= quirks.extra
    body = {**options.extra, **body} if options.protocol == PROTOCOL else body
    if (body.get("thinking") or {}).get("type") == "enabled" and _calls_without_thinking(body["messages"]):
        del body["thinking"]  # the API refuses it in a tool loop that began without it
    return body


def read_message(payload: Mapping[str, Any]) -> Reply:
    """Return a whole Messages reply.

    >>> read_message({"content": [{"type": "text", "text": "4"}], "stop_reason": "max_tokens"}).completions
    (Completion(text='4', tokens=(), finish='length', tool_calls=()),)
    """
    calls = [
        ToolCall(string(block["id"]), string(block["name"]), json.dumps(block["input"], ensure_ascii=False))
        for block in payload["content"]
        if block["type"] == "tool_use"
    ]
    return _reply(payload, calls)


def _reply(payload: Mapping[str, Any], calls: Iterable[ToolCall]) -> Reply:
    blocks = payload["content"]
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    finish = FINISH.get(payload.get("stop_reason") or "", "stop")
    completion = Completion(text, (), finish, tuple(calls), Wire(PROTOCOL, payload))
    usage = _usage(payload.get("usage") or {}, thought=any(map(_is_thinking, blocks)))
    return Reply((completion,), usage, string(payload.get("model")))


class StreamedMessage:
    """A streamed Messages reply, put together event by event."""

    def __init__(self) -> None:
        self.finished = False
        self._message: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._blocks: list[dict[str, Any]] = []
        """The content as it came, in its order; the input of a tool is a list of its parts."""

    def feed(self, payload: Mapping[str, Any]) -> Delta:
        """Add one event, and return what it adds to the answer."""
        match payload.get("type"):
            case "message_start":
                self._message = {"content": [], **payload["message"]}
                self._usage |= self._message.get("usage") or {}
            case "content_block_start":
                return self._open(payload["content_block"])
            case "content_block_delta":
                return self._add(payload["delta"])
            case "message_delta":
                self._message |= payload["delta"]
                # Counts here are totals, not increments; a null one says nothing new.
                self._usage |= {k: v for k, v in (payload.get("usage") or {}).items() if v is not None}
            case "message_stop":
                self.finished = True
        return Delta()

    def reply(self) -> Reply:
        """Return the whole reply."""
        if "content" not in self._message:
            raise ValueError("no message_start")
        blocks, calls = list[Mapping[str, Any]](), list[ToolCall]()
        for block in self._blocks:
            if block["type"] == "tool_use":
                calls.append(ToolCall(block["id"], block["name"], "".join(block["input"]) or "{}"))
            blocks.append(tool_use(calls[-1]) if block["type"] == "tool_use" else block)
        return _reply({**self._message, "content": blocks, "usage": self._usage}, calls)

    def _open(self, block: Mapping[str, Any]) -> Delta:
        self._blocks.append(dict(block))
        if block["type"] == "redacted_thinking":
            return Delta(wire=Wire(PROTOCOL, {"content_block": block}))
        if block["type"] != "tool_use":
            return Delta()
        call = CallDelta(self._call_number(), string(block["id"]), string(block["name"]))
        self._blocks[-1] |= {"id": call.id, "name": call.name, "input": []}
        return Delta(calls=(call,))

    def _add(self, delta: Mapping[str, Any]) -> Delta:
        match delta.get("type"):
            case "text_delta":
                if not isinstance(text := delta["text"], str):
                    raise TypeError(f"text is a {type(text).__name__}")  # reported as a malformed answer
                self._extend("text", text)
                return Delta(text)
            case "thinking_delta":
                self._extend("thinking", thought := string(delta["thinking"]))
                return Delta(thinking=thought)
            case "signature_delta":
                self._blocks[-1]["signature"] = string(delta["signature"])
                return Delta(wire=Wire(PROTOCOL, {"delta": delta}))
            case "input_json_delta" if self._blocks[-1]["type"] == "tool_use":
                self._blocks[-1]["input"].append(delta["partial_json"])
                return Delta(calls=(CallDelta(self._call_number(), arguments=delta["partial_json"]),))
        return Delta()

    def _call_number(self) -> int:
        return [block["type"] for block in self._blocks].count("tool_use") - 1

    def _extend(self, kind: str, text: str) -> None:
        """Append to the open block; open one if the server did not."""
        if not self._blocks or self._blocks[-1]["type"] != kind:
            self._blocks.append({"type": kind})
        block = self._blocks[-1]
        block[kind] = string(block.get(kind)) + text


def _usage(usage: Mapping[str, Any], *, thought: bool) -> Usage:
    fresh = count(usage.get("input_tokens"))
    cached = count(usage.get("cache_read_input_tokens")) or 0
    written = count(usage.get("cache_creation_input_tokens")) or 0
    hourly = count((usage.get("cache_creation") or {}).get("ephemeral_1h_input_tokens"))
    output = count(usage.get("output_tokens"))
    reasoning = count((usage.get("output_tokens_details") or {}).get("thinking_tokens"))
    if reasoning is None and output is not None and not thought:
        reasoning = 0
    surcharge = (
        any(count(value) for value in (usage.get("server_tool_use") or {}).values())
        or usage.get("service_tier") in ("priority", "batch")
        or usage.get("speed") == "fast"
        or usage.get("inference_geo") not in (None, "not_available", "global")
    )
    return Usage(
        input=None if fresh is None else fresh + cached + written,
        cached=None if fresh is None else cached,
        output=output,
        reasoning=reasoning,
        written=None if fresh is None else written,
        written_1h=None if fresh is None else hourly if hourly is not None or written else 0,
        unpriced=surcharge,
    )


def _is_thinking(block: Mapping[str, Any]) -> bool:
    return block.get("type") in ("thinking", "redacted_thinking")


# ── turns ───────────────────────────────────────────────────────────────────────────────────────────────────


def _system(messages: Iterable[Message], form: Format | None) -> Any:
    """Return the system prompt: text, or blocks where the client wrote blocks."""
    turns = [message for message in messages if message.role == "system" and not _in_place(message)]
    if form is not None and form.schema is None:
        turns.append(Message("system", JSON_ONLY))
    own = [wire_value(turn.wire, PROTOCOL) for turn in turns]
    if not any(own):
        return "\n\n".join(turn.text for turn in turns) or None
    each = (said["content"] if said else _blocks(turn.text) for turn, said in zip(turns, own, strict=True))
    return list(chain.from_iterable(each))


def _in_place(message: Message) -> bool:
    """Return whether a system turn came between other turns in this protocol, where it stays."""
    return "role" in (wire_value(message.wire, PROTOCOL) or ())


def _turns(messages: Iterable[Message], thoughts: Thoughts) -> list[dict[str, Any]]:
    """Return the conversation; tool results and the user's text after them share one turn, as the API requires."""
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
    if own := wire_value(message.wire, PROTOCOL):
        return dict(own)
    if message.role == "tool":
        images = [_image(image) for image in message.images]
        content: Any = [*_blocks(message.text), *images] if images else message.text
        result = {"type": "tool_result", "tool_use_id": message.tool_call_id or "", "content": content}
        return {"role": "user", "content": [result]}
    if not message.images and not message.tool_calls:
        return {"role": message.role, "content": message.text}
    text = _blocks(message.text) if message.text else []
    calls = map(tool_use, message.tool_calls)
    return {"role": message.role, "content": [*map(_image, message.images), *text, *calls]}


def _with_thinking(turn: dict[str, Any], message: Message, thoughts: Thoughts) -> dict[str, Any]:
    """Return an assistant's turn with what it thought before its tool calls, and without unsigned thinking.

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
    """Return whether the last turns are a tool loop whose calls came without thinking."""
    last = next((turn["content"] for turn in reversed(turns) if turn["role"] == "assistant"), None)
    loop = bool(turns) and _has_result(turns[-1])
    return loop and isinstance(last, list) and bool(last) and not _is_thinking(last[0])


def tool_use(call: ToolCall) -> dict[str, Any]:
    """Return the block of a tool call; arguments that are no JSON object are kept under the name `arguments`.

    >>> tool_use(ToolCall("t1", "weather", '{"city": "Rome"}'))
    {'type': 'tool_use', 'id': 't1', 'name': 'weather', 'input': {'city': 'Rome'}}
    """
    try:
        value = load_json(call.arguments or "{}")
    except ValueError:
        value = call.arguments
    given = value if isinstance(value, dict) else {"arguments": value}
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": given}


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


def _tool(tool: Tool) -> Any:
    described = {"description": tool.description} if tool.description else {}
    schema = tool.parameters or {"type": "object", "properties": {}}
    return wire_value(tool.wire, PROTOCOL) or {"name": tool.name, **described, "input_schema": schema}


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
        own = wire_value(form.wire, PROTOCOL)
        config["format"] = own["format"] if own else {"type": "json_schema", "schema": form.schema}
    return config or None
