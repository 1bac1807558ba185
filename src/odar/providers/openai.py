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
from dataclasses import replace
from functools import partial
from typing import Any

from odar.conversation import Format, Image, Tool, ToolCall, ToolChoice, Wire
from odar.providers.base import (
    CallDelta,
    Completion,
    Delta,
    Message,
    OnDelta,
    Reply,
    Request,
    Sampling,
    check_translatable,
    wire_value,
)
from odar.providers.http import HttpProvider
from odar.providers.response import count, string
from odar.types import Token, Usage

_CONTROL = re.compile(
    r"<\|[^|<>]*\|>"  # <|eot_id|>, <|im_end|>
    r"|<｜[^｜<>]*｜>"  # DeepSeek's, with wide bars
    r"|</?s>|<(?:bos|eos|pad|unk|start_of_turn|end_of_turn)>"
)
_UNREADABLE = "\ufffd"
"""The text of a token that is a part of a character."""
_Decoder = codecs.getincrementaldecoder("utf-8")
_NOT_COMPUTED = -9999.0
"""What OpenAI and vLLM write for a log-probability that they did not compute."""
PROTOCOL = "openai"
MESSAGE_FIELDS = frozenset({"role", "content", "refusal", "tool_calls", "function_call"})
"""Fields of a message that ODAR represents itself."""
_TIERS = frozenset({"batch", "flex", "priority", "scale", "ultrafast"})
"""Service tiers with prices of their own."""
_USER_CHARACTERS = 64
"""Maximum length of `user` at OpenAI."""
_FINISH = {"eos": "stop", "end_turn": "stop", "max_tokens": "length", "function_call": "tool_calls"}


class OpenAIProvider(HttpProvider):
    """Models behind a chat-completions API.

    >>> OpenAIProvider("local", "http://localhost:8080/v1").name
    'local'
    """

    async def complete(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        """Answer the request; with `on_delta` and n = 1, pass on the text while it is generated.

        A server may return fewer completions than asked for; some ignore `n`.
        """
        on_delta = on_delta if request.n == 1 else None

        async def send(request: Request) -> Reply:
            body = chat_body(request, stream=on_delta is not None)
            return await self.post("/chat/completions", body, request, read_reply, StreamedReply, on_delta)

        return await self.refusals.ask(request, send)

    async def score(self, request: Request, text: str) -> Reply:
        """Return the text with its log-probabilities as the next turn; vLLM can do it, and few others."""
        body = score_body(request, text)
        interpret = partial(read_scores, text=text)
        return await self.post("/chat/completions", body, request, interpret, StreamedReply, None)

    async def forward(self, address: str, body: Mapping[str, Any], request: Request) -> Reply:
        """Send a body to an address of the server, such as /embeddings; the reply holds what came back."""
        return await self.post(address, dict(body), request, read_forwarded, StreamedReply, None)


def chat_body(request: Request, *, stream: bool = False) -> dict[str, Any]:
    """Return the body of a chat-completions request.

    >>> body = chat_body(Request("m", (Message("user", "2 + 2?"),), logprobs=False))
    >>> body["messages"], body["max_tokens"], "n" in body
    ([{'role': 'user', 'content': '2 + 2?'}], 512, False)
    """
    sampling, quirks, options = request.sampling, request.quirks, request.options
    check_translatable(request.messages, PROTOCOL)
    choice, form, user = options.tool_choice, options.format, options.user
    if user and options.protocol != PROTOCOL and len(user) > _USER_CHARACTERS:  # other protocols allow more
        user = hashlib.sha256(user.encode()).hexdigest()
    wanted: dict[str, Any] = {
        "model": request.model,
        "messages": _messages(request.messages),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        quirks.max_tokens_field: sampling.max_tokens,
        "stop": list(sampling.stop) or None,
        "seed": sampling.seed,
        "n": request.n if request.n > 1 else None,
        "tools": [_tool(tool) for tool in options.tools] or None,
        "tool_choice": _tool_choice(choice) if choice else None,
        "parallel_tool_calls": options.parallel_tools,
        "response_format": _response_format(form) if form else None,
        "user": user,
        "reasoning_effort": options.effort,
    }
    body = {name: value for name, value in wanted.items() if value is not None and name not in quirks.drop}
    if request.logprobs:
        # llama.cpp returns nothing at all below 1.
        body |= {"logprobs": True, "top_logprobs": max(1, options.top_logprobs or 0)}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    body |= quirks.extra
    return {**options.extra, **body} if options.protocol == PROTOCOL else body


def read_reply(payload: Mapping[str, Any]) -> Reply:
    """Return a whole chat-completions reply.

    >>> reply = read_reply({"choices": [{"message": {"content": "<think>hm</think>4"}}]})
    >>> reply.completions
    (Completion(text='4', tokens=(), finish='stop', tool_calls=()),)
    >>> reply.usage.input is None
    True
    """
    choices = []
    for part in sorted(payload["choices"], key=_index):
        choices.append(_Choice(Wire(PROTOCOL, part)))
        choices[-1].take(part, part["message"])
    return _reply(choices, payload)


def read_forwarded(payload: Mapping[str, Any]) -> Reply:
    """A reply to embeddings (`data`, with no output tokens) or completions (`choices`), with the payload as it is.

    >>> read_forwarded({"data": [{"embedding": [0.5]}], "usage": {"prompt_tokens": 3}}).usage.output
    0
    """
    choices, usage = payload.get("choices"), payload.get("usage") or {}
    if choices is None:
        if not isinstance(payload["data"], list):
            raise ValueError("data is not a list")
        usage, texts = {**usage, "completion_tokens": 0}, [""]
    else:
        texts = [string(choice.get("text")) for choice in choices]
    if not texts:
        raise ValueError("no choices")
    completions = tuple(Completion(text, wire=Wire(PROTOCOL, payload)) for text in texts)
    return Reply(completions, read_usage({**payload, "usage": usage}), string(payload.get("model")))


class StreamedReply:
    """A streamed chat-completions reply of one choice, put together event by event."""

    def __init__(self) -> None:
        self.finished = False
        self._choice: _Choice | None = None
        self._last: dict[str, Any] = {}

    def feed(self, payload: Mapping[str, Any]) -> Delta:
        """Add one event, and return what it adds to the answer."""
        # Usage and model come in different events, depending on the server: the latest of each counts.
        self._last |= {name: payload[name] for name in ("model", "usage", "service_tier") if payload.get(name)}
        for part in payload.get("choices") or ():
            if _index(part) == 0:
                self._choice = self._choice or _Choice()
                added = self._choice.take(part, part.get("delta") or {})
                self.finished = self.finished or self._choice.finish is not None
                return added
        return Delta()

    def reply(self) -> Reply:
        """Return the whole reply."""
        return _reply([self._choice] if self._choice else [], self._last)


class Thinking:
    """Removes a `<think>…</think>` block from the start of an answer that arrives in pieces.

    >>> thinking = Thinking()
    >>> [thinking.feed(piece) for piece in ("<thi", "nk>2 and 2</thi", "nk>\\n", "\\n4", " is it")]
    ['', '', '', '4', ' is it']
    """

    def __init__(self) -> None:
        self.seen = False
        self._answering = False
        self._held = ""

    def feed(self, text: str) -> str:
        """Return the part of this text that belongs to the answer, as far as is known by now."""
        if self._answering:
            return text
        self._held += text
        if self.seen and ">" not in text and "</think>" not in self._held[-100:]:
            return ""  # still thinking: do not search all of it again
        start = self._held.lstrip()
        self.seen = start.startswith("<think>")
        if self.seen:
            answer = start.partition("</think>")[2].lstrip()
            self._answering = bool(answer)
            return answer
        if "<think>".startswith(start):
            return ""
        self._answering = True
        return self._held

    def end(self) -> str:
        """Return held-back text that turned out to be part of the answer."""
        held = "" if self._answering or self.seen else self._held
        self._answering = True
        return held


class _Choice:
    """One choice: a whole message, or the deltas of one."""

    def __init__(self, wire: Wire | None = None) -> None:
        self.finish: str | None = None
        self.reasoned = False
        self._wire = wire
        self._thinking = Thinking()
        self._texts: list[str] = []
        self._tokens: list[Token] = []
        self._calls: dict[int, list[CallDelta]] = {}
        # A character may be spread over several tokens: the one that completes it gets its text.
        self._decoder = _Decoder("replace")
        self._partial = False

    def take(self, choice: Mapping[str, Any], message: Mapping[str, Any]) -> Delta:
        thought = message.get("reasoning_content") or message.get("reasoning")
        logprobs = choice.get("logprobs") or {}
        self._read_tokens(logprobs)
        content = message.get("content")
        added = self._thinking.feed(_text(message.get("refusal") if content is None else content))
        self.reasoned = self.reasoned or bool(thought) or self._thinking.seen
        calls = [_call_delta(index, call) for index, call in enumerate(message.get("tool_calls") or ())]
        for call in calls:
            self._calls.setdefault(call.index, []).append(call)
        if finish := choice.get("finish_reason"):
            self.finish = _FINISH.get(finish, str(finish))
            added += self._thinking.end()
        self._texts.append(added)
        more = (added and logprobs) or any(value for name, value in message.items() if name not in MESSAGE_FIELDS)
        return Delta(added, tuple(calls), Wire(PROTOCOL, choice) if more else None, string(thought))

    def completion(self) -> Completion:
        text = "".join(self._texts)
        if self.finish is None:  # whole, but the server gave no reason
            text += self._thinking.end()
        tokens, finish = tuple(self._tokens), self.finish or "stop"
        calls = tuple(_joined(parts) for _, parts in sorted(self._calls.items()))
        return Completion(
            text,
            _tail(tokens, len(text)) if self.reasoned else tokens,
            "tool_calls" if calls and finish == "stop" else finish,
            calls,
            self._wire,
        )

    def _read_tokens(self, logprobs: Mapping[str, Any]) -> None:
        entries: Iterable[Mapping[str, Any]] = logprobs.get("content") or ()
        if not entries and logprobs.get("tokens"):  # the older shape, which Together uses
            pairs = zip(logprobs["tokens"], logprobs["token_logprobs"], strict=True)
            entries = [{"token": token, "logprob": logprob} for token, logprob in pairs]
        for entry in entries:  # once for each token, so without calls for what nearly all of them have
            token, raw, logprob = entry["token"], entry.get("bytes"), entry.get("logprob")
            if type(token) is not str:
                token = ""
            if type(logprob) is not float or not _NOT_COMPUTED < logprob <= 0:
                logprob = logprob_of(logprob)
            if not isinstance(raw, list):  # null; bytes() of a number would be that many zeros
                raw, text = None, token
                self._decoder.reset()
                self._partial = False
            elif not self._partial and token.isascii() and token.encode() == bytes(raw):  # nearly all of them
                text = token
            else:
                text = self._decoder.decode(bytes(raw))
                self._partial = bool(self._decoder.getstate()[0])
            # A token without any text is the end of the turn, as llama.cpp reports it.
            control = not (raw or token) or (token.startswith("<") and _CONTROL.fullmatch(token) is not None)
            self._tokens.append(Token(text, logprob, control))


def _reply(choices: list[_Choice], payload: Mapping[str, Any]) -> Reply:
    if not choices:
        raise ValueError("no choices")
    usage = read_usage(payload, reasoned=any(choice.reasoned for choice in choices))
    return Reply(tuple(choice.completion() for choice in choices), usage, string(payload.get("model")))


def read_usage(payload: Mapping[str, Any], *, reasoned: bool = False) -> Usage:
    """Return the usage that a server reports; `reasoned` is whether the reply contains reasoning."""
    usage = payload.get("usage") or {}
    prompt, completion = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
    read, made = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
    # The second names are DeepSeek's and Qwen's.
    cached = _first(read.get("cached_tokens"), usage.get("prompt_cache_hit_tokens"))
    written = _first(read.get("cache_write_tokens"), read.get("cache_creation_input_tokens"))
    reasoning = count(made.get("reasoning_tokens"))
    if reasoning is None and completion is not None and not reasoned:
        reasoning = 0
    audio = count(read.get("audio_tokens")) or count(made.get("audio_tokens"))
    return Usage(
        input=prompt,
        cached=0 if cached is None and prompt is not None else cached,
        output=completion,
        reasoning=reasoning,
        written=None if prompt is None else written or 0,
        written_1h=None if prompt is None else 0,
        unpriced=bool(audio or payload.get("service_tier") in _TIERS),
    )


def _first(*values: Any) -> int | None:
    return next((number for value in values if (number := count(value)) is not None), None)


def _tail(tokens: tuple[Token, ...], characters: int) -> tuple[Token, ...]:
    """Return the last tokens that make up this many characters: those of the answer after the reasoning."""
    start, covered = len(tokens), 0
    while start and covered < characters:
        start -= 1
        covered += 0 if tokens[start].control else len(tokens[start].text)
    return tokens[start:] if characters else ()


def _text(content: Any) -> str:
    """Return the text of a message: a string, nothing, or a list of parts of which only the text ones count."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part["text"] for part in content if part.get("type") in ("text", "output_text"))


def logprob_of(value: Any) -> float | None:
    """Return a log-probability as a server reports it; None for what cannot be one."""
    number = type(value) is float or type(value) is int
    return float(value) if number and _NOT_COMPUTED < value <= 0 else None


def _index(choice: Mapping[str, Any]) -> int:
    return count(choice.get("index")) or 0


def _call_delta(position: int, call: Mapping[str, Any]) -> CallDelta:
    function = call.get("function") or {}
    arguments = function.get("arguments")
    if arguments is not None and not isinstance(arguments, str):  # an object instead of its JSON text
        arguments = json.dumps(arguments)
    index = count(call.get("index"))
    return CallDelta(
        position if index is None else index, string(call.get("id")), string(function.get("name")), arguments or ""
    )


def _joined(parts: Sequence[CallDelta]) -> ToolCall:
    """Return a tool call from its deltas; its id is empty if the server sends none."""
    first = {name: next((v for part in parts if (v := getattr(part, name))), "") for name in ("id", "name")}
    return ToolCall(first["id"], first["name"], "".join(part.arguments for part in parts))


def _messages(messages: Sequence[Message]) -> list[Any]:
    """Return the turns; a system turn that an Anthropic client put between others becomes a user's reminder.

    Many servers' chat templates allow a system turn only at the start.
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
    """Return a tool call as it stands in a message."""
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
    """Return the image's address, or its bytes as a data: URL.

    >>> image_url(Image("image/png", b"..."))
    'data:image/png;base64,Li4u'
    """
    return image.url or f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}"


def score_body(request: Request, text: str) -> dict[str, Any]:
    """Return a chat-completions request that generates one token and scores the prompt, as vLLM can.

    The text is sent as an unfinished turn, and `prompt_logprobs` come back.

    >>> body = score_body(Request("m", (Message("user", "2 + 2?"),)), "4")
    >>> body["messages"][-1], body["prompt_logprobs"], body["max_tokens"]
    ({'role': 'assistant', 'content': '4'}, 0, 1)
    """
    conversation = (*request.messages, Message("assistant", text.strip()))
    plain = replace(request, messages=conversation, sampling=Sampling(0.0, None, 1), n=1, logprobs=False)
    return chat_body(plain) | {
        "prompt_logprobs": 0,  # of the prompt's own tokens, and no alternatives
        "add_generation_prompt": False,
        "continue_final_message": True,
    }


def read_scores(payload: Mapping[str, Any], text: str) -> Reply:
    """Return the reply to `score_body`: the text's own tokens, which end the prompt.

    Raises:
        ValueError: the server sent no `prompt_logprobs`, or they do not end with the text.
    """
    entries = payload.get("prompt_logprobs")
    if not entries:
        raise ValueError("no prompt_logprobs: this server cannot score a given text")
    tokens = _ending(text.strip(), [_token(entry) for entry in entries])
    return Reply((Completion(text, tuple(tokens)),), read_usage(payload), string(payload.get("model")))


def _token(entry: Mapping[str, Any] | None) -> Token:
    """Return the prompt's own token: the only entry, or the first if there are alternatives."""
    if not entry:  # the first token of a prompt has no log-probability
        return Token("", None)
    own = next(iter(entry.values()))
    return Token(own.get("decoded_token") or "", logprob_of(own["logprob"]))


def _ending(text: str, tokens: Sequence[Token]) -> list[Token]:
    """Return the last tokens, which make up the text.

    Only ASCII characters are compared: a token that holds a part of a character is not readable. The chat
    template's last characters may share a token with the text's first.

    >>> [token.text for token in _ending("is 4", [Token("\\n", -1.0), Token("is", -1.0), Token(" 4", -2.0)])]
    ['is', ' 4']
    """
    wanted, found, start = _ascii(text), "", len(tokens)
    while start and (len(found) < len(wanted) or not _ascii(tokens[start - 1].text or "-")):
        start -= 1
        found = _ascii(tokens[start].text) + found
    if not found.endswith(wanted) or start == len(tokens):
        raise ValueError("prompt_logprobs do not end with the text that was sent")
    own = [Token(token.text.replace(_UNREADABLE, ""), token.logprob) for token in tokens[start:]]
    shared = len(found) - len(wanted)
    return [Token(own[0].text[shared:], own[0].logprob), *own[1:]]


def _ascii(text: str) -> str:
    return text.encode("ascii", "ignore").decode()
