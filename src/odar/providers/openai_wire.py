"""The chat-completions format, both ways: a `Request` to a JSON body, a JSON reply or a stream to a `Reply`.

Pure functions: the embedded model's server speaks this format too, without HTTP. Malformed payloads raise
LookupError, TypeError, ValueError or AttributeError, which the caller turns into a ProviderProtocolError.
"""

from __future__ import annotations

import base64
import codecs
import re
from collections.abc import Iterable, Mapping
from typing import Any

from odar.providers.base import Completion, Message, Reply, Request
from odar.providers.response import count
from odar.types import Image, Token, Usage

_CONTROL = re.compile(
    r"<\|[^|<>]*\|>"  # <|eot_id|>, <|im_end|>
    r"|<｜[^｜<>]*｜>"  # DeepSeek's, with wide bars
    r"|</?s>|<(?:bos|eos|pad|unk|start_of_turn|end_of_turn)>"
)
_UNLIKELY = -9999.0
"""What OpenAI and vLLM write for a log-probability that they did not compute."""
_FINISH = {"eos": "stop", "end_turn": "stop", "max_tokens": "length", "function_call": "tool_calls"}


def chat_body(request: Request, *, stream: bool = False) -> dict[str, Any]:
    """The body of a chat-completions request.

    >>> body = chat_body(Request("m", (Message("user", "2 + 2?"),), logprobs=False))
    >>> body["messages"], body["max_tokens"], "n" in body
    ([{'role': 'user', 'content': '2 + 2?'}], 512, False)
    """
    sampling, quirks = request.sampling, request.quirks
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [_message(message) for message in request.messages],
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        quirks.max_tokens_field: sampling.max_tokens,
    }
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if request.n > 1:
        body["n"] = request.n
    if request.logprobs:
        # llama.cpp returns nothing at all below 1.
        body |= {"logprobs": True, "top_logprobs": 1}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return {name: value for name, value in body.items() if name not in quirks.drop} | dict(quirks.extra)


def read_reply(payload: Mapping[str, Any]) -> Reply:
    """A whole chat-completions reply.

    >>> reply = read_reply({"choices": [{"message": {"content": "<think>hm</think>4"}}]})
    >>> reply.completions
    (Completion(text='4', tokens=(), finish='stop'),)
    >>> reply.usage
    Usage(input=None, cached=None, output=None, reasoning=None)
    """
    choices = [_Choice() for _ in payload["choices"]]
    if not choices:
        raise ValueError("no choices")
    for choice, part in zip(choices, sorted(payload["choices"], key=_index), strict=True):
        choice.take(part, part["message"])
    return _reply(choices, payload)


class StreamedReply:
    """A streamed chat-completions reply of one choice, put together event by event."""

    def __init__(self) -> None:
        self.finished = False
        self._choice: _Choice | None = None
        self._last: dict[str, Any] = {}

    def feed(self, payload: Mapping[str, Any]) -> str:
        """Take one event in; the answer text that it adds."""
        # Usage and model come in different events, depending on the server: the latest of each counts.
        self._last |= {name: payload[name] for name in ("model", "usage") if payload.get(name)}
        added = ""
        for part in payload.get("choices") or ():
            if _index(part) != 0:
                continue
            self._choice = self._choice or _Choice()
            added += self._choice.take(part, part.get("delta") or {})
            self.finished = self.finished or self._choice.finish is not None
        return added

    def reply(self) -> Reply:
        """The whole reply."""
        if self._choice is None:
            raise ValueError("no choices")
        return _reply([self._choice], self._last)


class Thinking:
    """Keeps a `<think>…</think>` block at the start of an answer out of its text, however it is cut.

    >>> thinking = Thinking()
    >>> [thinking.feed(piece) for piece in ("<thi", "nk>2 and 2</thi", "nk>\\n", "\\n4", " is it")]
    ['', '', '', '4', ' is it']
    """

    _OPEN, _CLOSE = "<think>", "</think>"

    def __init__(self) -> None:
        self.seen = False
        self._inside = False
        self._answering = False
        self._held = ""

    def feed(self, text: str) -> str:
        """The part of this text that belongs to the answer, as far as is known by now."""
        if self._answering:
            return text
        self._held += text
        if self._inside:
            _, closed, rest = self._held.partition(self._CLOSE)
            if not closed:
                self._held = self._held[1 - len(self._CLOSE) :]  # the closing tag may be half here
                return ""
            self._inside, self._held = False, rest
        start = self._held.lstrip()
        if not self.seen and start.startswith(self._OPEN):
            self.seen = self._inside = True
            self._held = start.removeprefix(self._OPEN)
            return self.feed("")
        if not start or (not self.seen and self._OPEN.startswith(start)):
            return ""
        self._answering = True
        return start if self.seen else self._held

    def end(self) -> str:
        """What was held back at the end of the text and turned out to be answer."""
        held = "" if self._answering or self.seen else self._held
        self._answering = True
        return held


class _Choice:
    """One choice: a whole message, or the deltas of one."""

    def __init__(self) -> None:
        self.finish: str | None = None
        self.thinking = Thinking()
        self._reasoned = False
        self._texts: list[str] = []
        self._tokens = _Tokens()

    @property
    def reasoned(self) -> bool:
        return self._reasoned or self.thinking.seen

    def take(self, choice: Mapping[str, Any], message: Mapping[str, Any]) -> str:
        self._reasoned = self._reasoned or bool(message.get("reasoning_content") or message.get("reasoning"))
        self._tokens.add(choice.get("logprobs") or {})
        content = message.get("content")
        added = self.thinking.feed(_text(message.get("refusal") if content is None else content))
        if finish := choice.get("finish_reason"):
            self.finish = _FINISH.get(finish, str(finish))
            added += self.thinking.end()
        self._texts.append(added)
        return added

    def completion(self) -> Completion:
        text = "".join(self._texts)
        if self.finish is None:  # whole, but the server gave no reason
            text += self.thinking.end()
        tokens = tuple(self._tokens.read)
        return Completion(text, _tail(tokens, len(text)) if self.reasoned else tokens, self.finish or "stop")


class _Tokens:
    """Log-probabilities, entry by entry."""

    def __init__(self) -> None:
        self.read: list[Token] = []
        # A character may be spread over several tokens: the one that completes it gets its text.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, logprobs: Mapping[str, Any]) -> None:
        entries: Iterable[Mapping[str, Any]] = logprobs.get("content") or ()
        if not entries and logprobs.get("tokens"):  # the older shape, which Together uses
            pairs = zip(logprobs["tokens"], logprobs["token_logprobs"], strict=True)
            entries = [{"token": token, "logprob": logprob} for token, logprob in pairs]
        for entry in entries:
            token, raw = entry["token"], entry.get("bytes")
            if raw is None:
                self._decoder.reset()
            text = token if raw is None else self._decoder.decode(bytes(raw))
            # A token without any text is the end of the turn, as llama.cpp reports it.
            control = not (raw or token) or _CONTROL.fullmatch(token) is not None
            self.read.append(Token(text, _logprob(entry.get("logprob")), control))


def _reply(choices: list[_Choice], payload: Mapping[str, Any]) -> Reply:
    model = payload.get("model")
    return Reply(
        completions=tuple(choice.completion() for choice in choices),
        usage=_usage(payload.get("usage") or {}, reasoned=any(choice.reasoned for choice in choices)),
        model=model if isinstance(model, str) else "",
    )


def _usage(usage: Mapping[str, Any], *, reasoned: bool) -> Usage:
    prompt, completion = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
    cached = count((usage.get("prompt_tokens_details") or {}).get("cached_tokens"))
    if cached is None:
        cached = count(usage.get("prompt_cache_hit_tokens"))  # DeepSeek's name for it
    if cached is None and prompt is not None:
        cached = 0
    reasoning = count((usage.get("completion_tokens_details") or {}).get("reasoning_tokens"))
    if reasoning is None and completion is not None and not reasoned:
        reasoning = 0
    return Usage(input=prompt, cached=cached, output=completion, reasoning=reasoning)


def _tail(tokens: tuple[Token, ...], characters: int) -> tuple[Token, ...]:
    """The last tokens that make up this many characters: those of the answer after the reasoning."""
    start, covered = len(tokens), 0
    while start and covered < characters:
        start -= 1
        covered += 0 if tokens[start].control else len(tokens[start].text)
    return tokens[start:] if characters else ()


def _text(content: Any) -> str:
    """The text of a message: a string, nothing, or a list of parts of which only the text ones count."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part["text"] for part in content if part.get("type") in ("text", "output_text"))


def _logprob(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and _UNLIKELY < value <= 0 else None


def _index(choice: Mapping[str, Any]) -> int:
    return count(choice.get("index")) or 0


def _message(message: Message) -> dict[str, Any]:
    if not message.images:
        return {"role": message.role, "content": message.text}
    images = [{"type": "image_url", "image_url": {"url": image_url(image)}} for image in message.images]
    return {"role": message.role, "content": [{"type": "text", "text": message.text}, *images]}


def image_url(image: Image) -> str:
    """The image's address, or its bytes as a data: URL.

    >>> image_url(Image("image/png", b"..."))
    'data:image/png;base64,Li4u'
    """
    return image.url or f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}"
