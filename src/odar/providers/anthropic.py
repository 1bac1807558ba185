"""The Anthropic Messages API: no log-probabilities, and one sample a request.

Tools, tool choice, tool results and JSON schemas are translated between OpenAI's format and Anthropic's.
"""

from __future__ import annotations

import base64
import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

from odar.background import run_by_size
from odar.conversation import ChatParameters, Format, Image, Message, Tool, ToolCall, Wire
from odar.formats import load_json
from odar.providers.base import Completion, Delta, OnDelta, Reply, Request, check_translatable, wire_value
from odar.providers.http import HttpProvider
from odar.providers.prompt_cache import PromptCache
from odar.providers.response import count_or_none, str_or_empty
from odar.types import Usage

_VERSION = "2023-06-01"
_MAX_REMEMBERED_CALLS = 2_000
"""Number of tool calls whose thinking is remembered until their results arrive."""
PROTOCOL = "anthropic"
DEFAULT_MAX_TOKENS = 16_000
"""Used if the client sets no limit, because the API requires one. Every Claude since 4 can write as much."""
JSON_ONLY = "Reply with one JSON object and nothing else."
"""Instruction for a JSON object without a schema, for which the API has no format."""
_FINISH = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
    "tool_use": "tool_calls",
}
"""Every other stop reason is an ordinary stop."""
_TOOL_CHOICE = {"auto": "auto", "none": "none", "required": "any", "tool": "tool"}
ThinkingByCall = Mapping[str, list[Any]]
"""Thinking blocks by the id of the tool call that follows them."""


class AnthropicProvider(HttpProvider):
    """Claude models. `base_url` may end in /v1 or not.

    >>> AnthropicProvider("anthropic").name
    'anthropic'
    """

    models_path = "/v1/models?limit=1000"

    def __init__(
        self,
        name: str,
        base_url: str = "https://api.anthropic.com",
        api_key: str | None = None,
        *,
        cache_prompts: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(name, base_url.rstrip("/").removesuffix("/v1"), api_key, **options)
        self._prompts = PromptCache() if cache_prompts else None
        """For clients of other protocols; those of this one mark their prompts themselves."""
        self._thinking: OrderedDict[str, list[Any]] = OrderedDict()

    def auth_headers(self, key: str) -> dict[str, str]:
        return {"anthropic-version": _VERSION} | ({"x-api-key": key} if key else {})

    async def send(self, request: Request, on_delta: OnDelta | None) -> Reply:
        """Send a Messages request, which gives one sample, whatever `n` is."""
        make = partial(messages_body, request, stream=on_delta is not None, thinking=self._thinking)
        body = await run_by_size(request.image_bytes, make)
        betas = request.parameters.betas
        headers = {"anthropic-beta": ",".join(betas)} if betas else {}
        prompts = self._prompts if request.cache and request.parameters.protocol != PROTOCOL else None
        with prompts.use(request) if prompts else nullcontext((False, False)) as (instructions, conversation):
            add_cache_control(body, instructions=instructions, conversation=conversation)
            reply = await self.post("/v1/messages", body, request, read_message, StreamedMessage, on_delta, headers)
        self._remember_thinking(reply.completions[0])
        return reply

    def _remember_thinking(self, completion: Completion) -> None:
        """Remember the thinking before a tool call.

        The API requires it with the tool's result, and clients of other protocols cannot send it.
        """
        blocks = completion.wire.value["content"] if completion.wire else []
        if completion.tool_calls and (thinking := list(filter(_is_thinking, blocks))):
            self._thinking |= dict.fromkeys((call.id for call in completion.tool_calls), thinking)
        while len(self._thinking) > _MAX_REMEMBERED_CALLS:
            self._thinking.popitem(last=False)


def messages_body(
    request: Request, *, stream: bool = False, thinking: ThinkingByCall | None = None
) -> dict[str, Any]:
    """The body of a Messages request; `thinking` is added to turns whose protocol cannot hold it.

    >>> body = messages_body(Request("claude", (Message("system", "Be brief."), Message("user", "2 + 2?"))))
    >>> body["system"], body["messages"]
    ('Be brief.', [{'role': 'user', 'content': '2 + 2?'}])
    """
    sampling = request.sampling
    parameters = request.parameters
    check_translatable(request.messages, PROTOCOL)
    fields: dict[str, Any] = {
        "model": request.model,
        "messages": _turns(request.messages, thinking or {}),
        "system": _system(request.messages, parameters.format),
        "max_tokens": sampling.max_tokens or DEFAULT_MAX_TOKENS,
        # The API rejects stop sequences of white space only, such as the paper's "\n\n".
        "stop_sequences": [sequence for sequence in sampling.stop if sequence.strip()] or None,
        "tools": [_tool(tool) for tool in parameters.tools] or None,
        "tool_choice": _tool_choice(parameters),
        "output_config": _output_config(request),
        "metadata": {"user_id": parameters.user} if parameters.user else None,
        "stream": True if stream else None,
        **_temperature_or_top_p(request),
    }
    body = {name: value for name, value in fields.items() if value is not None and name not in request.drop}
    body |= request.extra
    body = {**parameters.extra, **body} if parameters.protocol == PROTOCOL else body
    thinking_set = body.get("thinking") or {}
    if thinking_set.get("type") == "enabled" and (
        _calls_without_thinking(body["messages"])
        or ("thinking" in request.extra and thinking_set["budget_tokens"] >= body["max_tokens"])
    ):
        # the API rejects it in a tool loop that began without it, or without room for an answer
        del body["thinking"]
    return body


def add_cache_control(body: dict[str, Any], *, instructions: bool = False, conversation: bool = False) -> None:
    """Add `cache_control` to the end of the instructions, and to the last turn.

    >>> body = {"system": "Be brief.", "messages": [{"role": "user", "content": "Hi"}]}
    >>> add_cache_control(body, instructions=True)
    >>> body["system"]
    [{'type': 'text', 'text': 'Be brief.', 'cache_control': {'type': 'ephemeral'}}]
    """
    if instructions and isinstance(body.get("system"), str):
        body["system"] = _marked(_blocks(body["system"]))
    elif instructions and body.get("tools") and not body.get("system"):
        body["tools"] = _marked(body["tools"])
    if conversation:
        turn = body["messages"][-1]
        body["messages"][-1] = {**turn, "content": _marked(_blocks(turn["content"]))}


def _marked(blocks: list[Any]) -> list[Any]:
    return [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]


def _temperature_or_top_p(request: Request) -> dict[str, float]:
    """One of the two, the one that the client set, else temperature: Claude 4.5 and later reject both.

    A catalogue entry for a model that needs top_p drops temperature. With thinking, the API allows no temperature.
    """
    sampling = request.sampling
    parameters = request.parameters
    by_client = parameters.temperature is not None
    client_thinking = not by_client and parameters.protocol == PROTOCOL and "thinking" in parameters.extra
    top_p_by_client = parameters.top_p is not None and not by_client
    if sampling.top_p is not None and (top_p_by_client or sampling.temperature is None):
        return {"top_p": sampling.top_p}
    if sampling.temperature is None or client_thinking or "thinking" in request.extra:
        return {}
    return {"temperature": min(sampling.temperature, 1.0)}  # the API's maximum


def read_message(payload: Mapping[str, Any]) -> Reply:
    """The reply of a Messages response.

    >>> read_message({"content": [{"type": "text", "text": "4"}], "stop_reason": "max_tokens"}).completions
    (Completion(text='4', tokens=(), finish='length', tool_calls=()),)
    """
    calls = [
        ToolCall(
            str_or_empty(block["id"]), str_or_empty(block["name"]), json.dumps(block["input"], ensure_ascii=False)
        )
        for block in payload["content"]
        if block["type"] == "tool_use"
    ]
    return _reply(payload, calls)


def _reply(payload: Mapping[str, Any], calls: Iterable[ToolCall]) -> Reply:
    blocks = payload["content"]
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    finish = _FINISH.get(payload.get("stop_reason") or "", "stop")
    completion = Completion(text, (), finish, tuple(calls), Wire(PROTOCOL, payload))
    usage = _usage(payload.get("usage") or {}, has_thinking=any(map(_is_thinking, blocks)))
    return Reply((completion,), usage, str_or_empty(payload.get("model")))


class StreamedMessage:
    """Assembles a streamed Messages reply."""

    def __init__(self) -> None:
        self.finished = False
        self._message: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._blocks: list[dict[str, Any]] = []
        """Content blocks in order; texts and the input of a tool call are lists of their parts."""
        self._calls = 0

    def feed(self, payload: Mapping[str, Any]) -> Delta:
        match payload.get("type"):
            case "message_start":
                self._message = {"content": [], **payload["message"]}
                self._usage |= self._message.get("usage") or {}
            case "content_block_start":
                return self._start_block(payload["content_block"])
            case "content_block_delta":
                return self._extend_block(payload["delta"])
            case "message_delta":
                self._message |= payload["delta"]
                # Counts are totals, not increments; a null leaves the earlier one.
                self._usage |= {k: v for k, v in (payload.get("usage") or {}).items() if v is not None}
            case "message_stop":
                self.finished = True
        return Delta()

    def reply(self) -> Reply:
        if "content" not in self._message:
            raise ValueError("no message_start")
        blocks: list[Mapping[str, Any]] = []
        calls: list[ToolCall] = []
        for block in self._blocks:
            if block["type"] == "tool_use":
                call = ToolCall(block["id"], block["name"], "".join(block["input"]) or "{}")
                calls.append(call)
                block = tool_use(call)
            elif isinstance(parts := block.get(block["type"]), list):
                block = {**block, block["type"]: "".join(parts)}
            blocks.append(block)
        return _reply({**self._message, "content": blocks, "usage": self._usage}, calls)

    def _start_block(self, block: Mapping[str, Any]) -> Delta:
        self._blocks.append(dict(block))
        match block["type"]:
            case "text":  # Anthropic's servers start with an empty text, others may not
                return Delta(str_or_empty(block.get("text")))
            case "thinking":
                return Delta(thinking=str_or_empty(block.get("thinking")))
            case "redacted_thinking":
                return Delta(wire=Wire(PROTOCOL, {"content_block": block}))
            case "tool_use":
                self._calls += 1
                call = ToolCall(str_or_empty(block["id"]), str_or_empty(block["name"]), "")
                self._blocks[-1] |= {"id": call.id, "name": call.name, "input": []}
                return Delta(tool_calls=((self._calls - 1, call),))
        return Delta()

    def _extend_block(self, delta: Mapping[str, Any]) -> Delta:
        match delta.get("type"):
            case "text_delta":
                if not isinstance(text := delta["text"], str):
                    raise TypeError(f"text is a {type(text).__name__}")  # reported as a malformed answer
                self._append("text", text)
                return Delta(text)
            case "thinking_delta":
                thinking = str_or_empty(delta["thinking"])
                self._append("thinking", thinking)
                return Delta(thinking=thinking)
            case "signature_delta":
                self._blocks[-1]["signature"] = str_or_empty(delta["signature"])
                return Delta(wire=Wire(PROTOCOL, {"delta": delta}))
            case "input_json_delta" if self._blocks[-1]["type"] == "tool_use":
                self._blocks[-1]["input"].append(delta["partial_json"])
                return Delta(tool_calls=((self._calls - 1, ToolCall("", "", delta["partial_json"])),))
        return Delta()

    def _append(self, kind: str, text: str) -> None:
        """Append text to the last block; start one if the server did not."""
        if not self._blocks or self._blocks[-1]["type"] != kind:
            self._blocks.append({"type": kind})
        block = self._blocks[-1]
        if not isinstance(block.get(kind), list):
            block[kind] = [str_or_empty(block.get(kind))]
        block[kind].append(text)


def _usage(usage: Mapping[str, Any], *, has_thinking: bool) -> Usage:
    fresh = count_or_none(usage.get("input_tokens"))
    cached = count_or_none(usage.get("cache_read_input_tokens")) or 0
    written = count_or_none(usage.get("cache_creation_input_tokens")) or 0
    hourly = count_or_none((usage.get("cache_creation") or {}).get("ephemeral_1h_input_tokens"))
    output = count_or_none(usage.get("output_tokens"))
    reasoning = count_or_none((usage.get("output_tokens_details") or {}).get("thinking_tokens"))
    if reasoning is None and output is not None and not has_thinking:
        reasoning = 0
    surcharge = (
        any(count_or_none(value) for value in (usage.get("server_tool_use") or {}).values())
        or usage.get("service_tier") in ("priority", "batch")
        or usage.get("speed") == "fast"
        or usage.get("inference_geo") not in (None, "not_available", "global")
    )
    if fresh is None:
        return Usage(output=output, reasoning=reasoning, unpriced=surcharge)
    if hourly is None and not written:
        hourly = 0
    return Usage(
        input=fresh + cached + written,
        cached=cached,
        output=output,
        reasoning=reasoning,
        written=written,
        written_1h=hourly,
        unpriced=surcharge,
    )


def _is_thinking(block: Mapping[str, Any]) -> bool:
    return block.get("type") in ("thinking", "redacted_thinking")


# ── turns ───────────────────────────────────────────────────────────────────────────────────────────────────


def _system(messages: Iterable[Message], form: Format | None) -> Any:
    """The system prompt: text, or blocks if the client sent blocks."""
    turns = [message for message in messages if message.role == "system" and not _is_system_turn(message)]
    if form is not None and form.schema is None:
        turns.append(Message("system", JSON_ONLY))
    sent = [wire_value(turn.wire, PROTOCOL) for turn in turns]
    if not any(sent):
        return "\n\n".join(turn.text for turn in turns) or None
    blocks: list[Any] = []
    for turn, wire in zip(turns, sent, strict=True):
        blocks += wire["content"] if wire else _blocks(turn.text)
    return blocks


def _is_system_turn(message: Message) -> bool:
    """Whether a system message came as a turn between others in this protocol; it stays one."""
    return "role" in (wire_value(message.wire, PROTOCOL) or ())


def _turns(messages: Iterable[Message], thinking: ThinkingByCall) -> list[dict[str, Any]]:
    """The conversation; tool results and the user's text after them share one turn, as the API requires."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system" and not _is_system_turn(message):
            continue
        turn = _turn(message)
        if message.role == "assistant":
            turn = _with_thinking(turn, message, thinking)
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


def _with_thinking(turn: dict[str, Any], message: Message, thinking: ThinkingByCall) -> dict[str, Any]:
    """An assistant's turn with the thinking before its tool calls, and without unsigned thinking.

    ODAR shows other models' thinking to clients of this protocol; the API rejects it when they send it back.
    """
    content = turn["content"]
    if isinstance(content, list):
        signed = [block for block in content if block.get("type") != "thinking" or block.get("signature")]
        content = signed or [{"type": "text", "text": message.text or "…"}]
        turn["content"] = content
    if isinstance(content, list) and any(map(_is_thinking, content)):
        return turn
    remembered = next((thinking[call.id] for call in message.tool_calls if call.id in thinking), None)
    return {**turn, "content": [*remembered, *_blocks(content)]} if remembered else turn


def _calls_without_thinking(turns: list[dict[str, Any]]) -> bool:
    """Whether the last turn has results of tool calls that came without thinking."""
    if not turns or not _has_result(turns[-1]):
        return False
    calls = next((turn["content"] for turn in reversed(turns) if turn["role"] == "assistant"), None)
    return isinstance(calls, list) and bool(calls) and not _is_thinking(calls[0])


def tool_use(call: ToolCall) -> dict[str, Any]:
    """The block of a tool call; arguments other than a JSON object are put under the name `arguments`.

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


def _tool_choice(parameters: ChatParameters) -> dict[str, Any] | None:
    choice = parameters.tool_choice
    if not parameters.tools or (choice is None and parameters.parallel_tools is None):
        return None
    chosen: dict[str, Any] = {"type": _TOOL_CHOICE[choice.mode] if choice else "auto"}
    if choice and choice.mode == "tool":
        chosen["name"] = choice.name
    if parameters.parallel_tools is not None and chosen["type"] != "none":
        chosen["disable_parallel_tool_use"] = not parameters.parallel_tools
    return chosen


def _output_config(request: Request) -> dict[str, Any] | None:
    parameters = request.parameters
    adaptive = (request.extra.get("thinking") or {}).get("type") == "adaptive"
    effort = None if request.effort else parameters.effort
    if adaptive:  # otherwise `extra` has the model's effort: a budget of thinking tokens, or no thinking
        effort = request.effort
    config: dict[str, Any] = {"effort": effort} if effort else {}
    if (form := parameters.format) is not None and form.schema is not None:
        own = wire_value(form.wire, PROTOCOL)
        config["format"] = own["format"] if own else {"type": "json_schema", "schema": form.schema}
    return config or None
