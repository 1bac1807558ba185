"""OpenAI chat completions, as spoken by OpenAI, vLLM, llama.cpp, Ollama, DeepSeek, Together and many more.

Malformed payloads raise LookupError, TypeError, ValueError or AttributeError, which become a ProviderProtocolError.
"""

from __future__ import annotations

import base64
import codecs
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from sys import intern
from typing import Any

import orjson

from odar.background import run_by_size
from odar.conversation import Format, Image, Tool, ToolCall, ToolChoice, Wire
from odar.providers.base import Completion, Delta, Message, OnDelta, Reply, Request, check_translatable, wire_value
from odar.providers.http import HttpProvider
from odar.providers.response import count_or_none, str_or_empty
from odar.types import Token, Usage

_CONTROL = re.compile(
    r"<\|[^|<>]*\|>"  # <|eot_id|>, <|im_end|>
    r"|<｜[^｜<>]*｜>"  # DeepSeek's, with wide bars
    r"|</?s>|<(?:bos|eos|pad|unk|start_of_turn|end_of_turn)>"
)
"""Text of a token that is part of a character."""
_Decoder = codecs.getincrementaldecoder("utf-8")
_NOT_COMPUTED = -9999.0
"""Placeholder of OpenAI and vLLM for a log-probability that was not computed."""
PROTOCOL = "openai"
MESSAGE_FIELDS = frozenset({"role", "content", "refusal", "tool_calls", "function_call"})
"""Fields of a message that ODAR represents itself."""
_TIERS = frozenset({"batch", "flex", "priority", "scale", "ultrafast"})
"""Service tiers with prices of their own."""
_MAX_BLANK = 1000
"""Blank characters before `<think>`; after more, what follows is the answer."""
_USER_CHARACTERS = 64
"""Maximum length of `user` at OpenAI."""
_FINISH = {"eos": "stop", "end_turn": "stop", "max_tokens": "length", "function_call": "tool_calls"}


class OpenAIProvider(HttpProvider):
    """Models behind a chat-completions API.

    >>> OpenAIProvider("local", "http://localhost:8080/v1").name
    'local'
    """

    async def send(self, request: Request, on_delta: OnDelta | None) -> Reply:
        """Send a chat-completions request. Servers may return fewer completions than `n`; some ignore it."""
        on_delta = on_delta if request.n == 1 else None
        body = await run_by_size(request.image_bytes, partial(chat_body, request, stream=on_delta is not None))
        interpret = partial(read_reply, alternatives=request.parameters.top_logprobs is not None)
        return await self.post("/chat/completions", body, request, interpret, StreamedReply, on_delta)

    async def forward(self, address: str, body: Mapping[str, Any], request: Request) -> Reply:
        return await self.post(address, dict(body), request, read_forwarded, unread="data")


def chat_body(request: Request, *, stream: bool = False) -> dict[str, Any]:
    """The body of a chat-completions request.

    >>> body = chat_body(Request("m", (Message("user", "2 + 2?"),), logprobs=False))
    >>> body["messages"], body["max_tokens"], "n" in body
    ([{'role': 'user', 'content': '2 + 2?'}], 512, False)
    """
    sampling = request.sampling
    parameters = request.parameters
    check_translatable(request.messages, PROTOCOL)
    choice = parameters.tool_choice
    form = parameters.format
    user = parameters.user
    if user and parameters.protocol != PROTOCOL and len(user) > _USER_CHARACTERS:  # other protocols allow more
        user = hashlib.sha256(user.encode()).hexdigest()
    fields: dict[str, Any] = {
        "model": request.model,
        "messages": _messages(request.messages),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        request.max_tokens_field: sampling.max_tokens,
        "stop": list(sampling.stop) or None,
        "seed": sampling.seed,
        "n": request.n if request.n > 1 else None,
        "tools": [_tool(tool) for tool in parameters.tools] or None,
        "tool_choice": _tool_choice(choice) if choice else None,
        "parallel_tool_calls": parameters.parallel_tools,
        "response_format": _response_format(form) if form else None,
        "user": user,
        "reasoning_effort": request.effort or parameters.effort,
    }
    body = {name: value for name, value in fields.items() if value is not None and name not in request.drop}
    if request.logprobs:
        # llama.cpp returns nothing at all below 1.
        body |= {"logprobs": True, "top_logprobs": max(1, parameters.top_logprobs or 0)}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    body |= request.extra
    return {**parameters.extra, **body} if parameters.protocol == PROTOCOL else body


def read_reply(payload: Mapping[str, Any], *, alternatives: bool = True) -> Reply:
    """The reply of a chat-completions response; its log-probabilities as they came only with `alternatives`.

    >>> reply = read_reply({"choices": [{"message": {"content": "<think>hm</think>4"}}]})
    >>> reply.completions
    (Completion(text='4', tokens=(), finish='stop', tool_calls=()),)
    >>> reply.usage.input is None
    True
    """
    choices = []
    for part in sorted(payload["choices"], key=_index):
        wire = part if alternatives else {name: value for name, value in part.items() if name != "logprobs"}
        choice = Choice(Wire(PROTOCOL, wire))
        choice.add(part, part["message"])
        choices.append(choice)
    return _reply(choices, payload)


def read_forwarded(payload: Mapping[str, Any]) -> Reply:
    """The reply to embeddings (`data`, no output tokens) or completions (`choices`), with the whole payload.

    >>> read_forwarded({"data": [{"embedding": [0.5]}], "usage": {"prompt_tokens": 3}}).usage.output
    0
    """
    choices = payload.get("choices")
    usage = payload.get("usage") or {}
    if choices is None:
        if not isinstance(payload["data"], list | orjson.Fragment):
            raise ValueError("data is not a list")
        usage = {**usage, "completion_tokens": 0}
        texts = [""]
    else:
        texts = [str_or_empty(choice.get("text")) for choice in choices]
    if not texts:
        raise ValueError("no choices")
    completions = tuple(Completion(text, wire=Wire(PROTOCOL, payload)) for text in texts)
    return Reply(completions, read_usage({**payload, "usage": usage}), str_or_empty(payload.get("model")))


class StreamedReply:
    """Assembles a streamed chat-completions reply of one choice."""

    def __init__(self) -> None:
        self.finished = False
        self._choice: Choice | None = None
        self._metadata: dict[str, Any] = {}

    def feed(self, payload: Mapping[str, Any]) -> Delta:
        # Servers send usage and model in different events: the latest of each counts.
        self._metadata |= {name: payload[name] for name in ("model", "usage", "service_tier") if payload.get(name)}
        for part in payload.get("choices") or ():
            if _index(part) == 0:
                self._choice = self._choice or Choice()
                added = self._choice.add(part, part.get("delta") or {})
                self.finished = self.finished or self._choice.finish is not None
                return added
        return Delta()

    def reply(self) -> Reply:
        return _reply([self._choice] if self._choice else [], self._metadata)


class ThinkingFilter:
    """Removes a `<think>…</think>` block from the start of an answer that arrives in pieces.

    >>> thinking = ThinkingFilter()
    >>> [thinking.feed(piece) for piece in ("<thi", "nk>2 and 2</thi", "nk>\\n", "\\n4", " is it")]
    ['', '', '', '4', ' is it']
    """

    def __init__(self) -> None:
        self.seen = False
        self._answering = False
        self._buffer = ""
        """Text that may belong to the answer; the end of what was read while the model thinks."""

    def feed(self, text: str) -> str:
        """The part of the text so far that is known to belong to the answer and was not returned before."""
        if self._answering:
            return text
        self._buffer += text
        if not self.seen:
            start = self._buffer.lstrip()
            self.seen = start.startswith("<think>")
            if not self.seen:
                blank = len(self._buffer) - len(start)
                self._answering = blank > _MAX_BLANK or not "<think>".startswith(start)
                return self._buffer if self._answering else ""
        before, closed, answer = self._buffer.partition("</think>")
        answer = answer.lstrip()
        # what was read is not searched again, except for the beginning of a closing tag
        self._buffer = closed or before[1 - len("</think>") :]
        self._answering = bool(answer)
        return answer

    def flush(self) -> str:
        """Buffered text that turned out to be part of the answer."""
        text = "" if self._answering or self.seen else self._buffer
        self._answering = True
        return text


class Choice:
    """One choice, from a whole message or from its deltas; the local runtime has the same format."""

    def __init__(self, wire: Wire | None = None) -> None:
        self.finish: str | None = None
        self.reasoned = False
        self._wire = wire
        self._thinking = ThinkingFilter()
        self._texts: list[str] = []
        self._tokens: list[Token] = []
        self._calls: dict[int, list[ToolCall]] = {}
        """The parts of each tool call."""
        # A character may be spread over several tokens: the one that completes it gets its text.
        self._decoder = _Decoder("replace")
        self._partial = False

    def add(self, choice: Mapping[str, Any], message: Mapping[str, Any]) -> Delta:
        thought = message.get("reasoning_content") or message.get("reasoning")
        logprobs = choice.get("logprobs") or {}
        self._read_tokens(logprobs)
        content = message.get("content")
        added = self._thinking.feed(_text(message.get("refusal") if content is None else content))
        self.reasoned = self.reasoned or bool(thought) or self._thinking.seen
        calls = [_call_part(position, call) for position, call in enumerate(message.get("tool_calls") or ())]
        for index, call in calls:
            self._calls.setdefault(index, []).append(call)
        if finish := choice.get("finish_reason"):
            self.finish = _FINISH.get(finish, str(finish))
            added += self._thinking.flush()
        self._texts.append(added)
        extra = (added and logprobs) or any(value for name, value in message.items() if name not in MESSAGE_FIELDS)
        return Delta(added, tuple(calls), Wire(PROTOCOL, choice) if extra else None, str_or_empty(thought))

    def completion(self) -> Completion:
        text = "".join(self._texts)
        if self.finish is None:  # the server gave no reason
            text += self._thinking.flush()
        tokens = tuple(self._tokens)
        finish = self.finish or "stop"
        calls = tuple(_join_call(parts) for _, parts in sorted(self._calls.items()))
        return Completion(
            text,
            _last_tokens(tokens, len(text)) if self.reasoned else tokens,
            "tool_calls" if calls and finish == "stop" else finish,
            calls,
            self._wire,
        )

    def _read_tokens(self, logprobs: Mapping[str, Any]) -> None:
        entries: Iterable[Mapping[str, Any]] = logprobs.get("content") or ()
        if not entries and logprobs.get("tokens"):  # the older format, which Together uses
            pairs = zip(logprobs["tokens"], logprobs["token_logprobs"], strict=True)
            entries = [{"token": token, "logprob": logprob} for token, logprob in pairs]
        for entry in entries:  # runs once for each token: the common cases make no calls
            token = entry["token"]
            raw = entry.get("bytes")
            logprob = entry.get("logprob")
            if type(token) is not str:
                token = ""
            if type(logprob) is int:
                logprob = float(logprob) if _NOT_COMPUTED < logprob <= 0 else None
            elif type(logprob) is not float or not _NOT_COMPUTED < logprob <= 0:
                logprob = None
            if not isinstance(raw, list):  # null; bytes() of a number would be that many zeros
                raw = None
                text = token
                self._decoder.reset()
                self._partial = False
            elif not self._partial and token.isascii() and token.encode() == bytes(raw):  # nearly all of them
                text = token
            else:
                text = self._decoder.decode(bytes(raw))
                self._partial = bool(self._decoder.getstate()[0])
            # llama.cpp reports the end of the turn as a token without text.
            control = not (raw or token) or (token.startswith("<") and _CONTROL.fullmatch(token) is not None)
            self._tokens.append(Token(intern(text), logprob, control))  # most texts occur again and again


def _reply(choices: list[Choice], payload: Mapping[str, Any]) -> Reply:
    if not choices:
        raise ValueError("no choices")
    usage = read_usage(payload, reasoned=any(choice.reasoned for choice in choices))
    return Reply(tuple(choice.completion() for choice in choices), usage, str_or_empty(payload.get("model")))


def read_usage(payload: Mapping[str, Any], *, reasoned: bool = False) -> Usage:
    """The usage that a server reports; `reasoned` is whether the reply contains reasoning."""
    usage = payload.get("usage") or {}
    prompt = count_or_none(usage.get("prompt_tokens"))
    completion = count_or_none(usage.get("completion_tokens"))
    prompt_details = usage.get("prompt_tokens_details") or {}
    completion_details = usage.get("completion_tokens_details") or {}
    # The second names are those of DeepSeek and Qwen.
    cached = _first_count(prompt_details.get("cached_tokens"), usage.get("prompt_cache_hit_tokens"))
    written = _first_count(
        prompt_details.get("cache_write_tokens"), prompt_details.get("cache_creation_input_tokens")
    )
    reasoning = count_or_none(completion_details.get("reasoning_tokens"))
    if reasoning is None and completion is not None and not reasoned:
        reasoning = 0
    audio = any(count_or_none(details.get("audio_tokens")) for details in (prompt_details, completion_details))
    return Usage(
        input=prompt,
        cached=0 if cached is None and prompt is not None else cached,
        output=completion,
        reasoning=reasoning,
        written=None if prompt is None else written or 0,
        written_1h=None if prompt is None else 0,
        unpriced=audio or payload.get("service_tier") in _TIERS,
    )


def _first_count(*values: Any) -> int | None:
    return next((number for value in values if (number := count_or_none(value)) is not None), None)


def _last_tokens(tokens: tuple[Token, ...], characters: int) -> tuple[Token, ...]:
    """The last tokens that make up this many characters: those of the answer after the reasoning."""
    start = len(tokens)
    covered = 0
    while start and covered < characters:
        start -= 1
        covered += 0 if tokens[start].control else len(tokens[start].text)
    return tokens[start:] if characters else ()


def _text(content: Any) -> str:
    """The text of a message whose content is a string, a list of parts, or None."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part["text"] for part in content if part.get("type") in ("text", "output_text"))


def _index(choice: Mapping[str, Any]) -> int:
    return count_or_none(choice.get("index")) or 0


def _call_part(position: int, call: Mapping[str, Any]) -> tuple[int, ToolCall]:
    function = call.get("function") or {}
    arguments = function.get("arguments")
    if arguments is not None and not isinstance(arguments, str):  # an object instead of its JSON text
        arguments = json.dumps(arguments)
    index = count_or_none(call.get("index"))
    part = ToolCall(str_or_empty(call.get("id")), str_or_empty(function.get("name")), arguments or "")
    return position if index is None else index, part


def _join_call(parts: Sequence[ToolCall]) -> ToolCall:
    id_ = next((part.id for part in parts if part.id), "")
    name = next((part.name for part in parts if part.name), "")
    return ToolCall(id_, name, "".join(part.arguments for part in parts))


def _messages(messages: Sequence[Message]) -> list[Any]:
    """The turns; a system turn that an Anthropic client put between others becomes a user turn.

    Many chat templates allow a system turn only at the start.
    """
    turns = []
    for position, message in enumerate(messages):
        foreign = message.wire is not None and message.wire.protocol != PROTOCOL
        if message.role == "system" and foreign and any(m.role != "system" for m in messages[:position]):
            message = Message("user", f"<system-reminder>\n{message.text}\n</system-reminder>")
        turns.append(_message(message))
    return turns


def _message(message: Message) -> Any:
    if own := wire_value(message.wire, PROTOCOL):
        return own
    content: Any = message.text
    if message.images:
        images = [{"type": "image_url", "image_url": {"url": image_url(image)}} for image in message.images]
        content = [{"type": "text", "text": message.text}, *images]
    turn: dict[str, Any] = {"role": message.role, "content": content}
    if message.tool_calls:
        turn["content"] = message.text or None
        turn["tool_calls"] = [call_entry(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        turn["tool_call_id"] = message.tool_call_id
    return turn


def call_entry(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _tool(tool: Tool) -> Any:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    if tool.parameters is not None:
        function["parameters"] = tool.parameters
    return wire_value(tool.wire, PROTOCOL) or {"type": "function", "function": function}


def _tool_choice(choice: ToolChoice) -> Any:
    return {"type": "function", "function": {"name": choice.name}} if choice.mode == "tool" else choice.mode


def _response_format(form: Format) -> Any:
    if own := wire_value(form.wire, PROTOCOL):
        return own
    if form.schema is None:
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": form.name, "schema": form.schema}}


def image_url(image: Image) -> str:
    """The image's address, or its bytes as a data: URL.

    >>> image_url(Image("image/png", b"..."))
    'data:image/png;base64,Li4u'
    """
    return image.url or f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}"
