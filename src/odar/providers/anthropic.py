"""The Anthropic Messages API. It returns no log-probabilities, and one sample a request."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from odar.errors import ProviderError
from odar.providers.base import Completion, Message, OnText, Reply, Request
from odar.providers.http import HttpClient, RetryPolicy, model_count
from odar.providers.response import count
from odar.types import NO_USAGE, Image, Usage

_VERSION = "2023-06-01"
_FINISH = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
    "tool_use": "tool_calls",
}
"""Every other stop reason is an ordinary stop."""


class AnthropicProvider:
    """Claude models.

    Args:
        name: the name it is configured under.
        base_url: the server, with or without its closing /v1.
        api_key: sent as x-api-key.
        retry: when to try again.
        headers: further headers.
        key_hint: what to tell a user whose key is refused.

    >>> AnthropicProvider("anthropic").name
    'anthropic'
    """

    def __init__(
        self,
        name: str,
        base_url: str = "https://api.anthropic.com",
        api_key: str | None = None,
        *,
        retry: RetryPolicy | None = None,
        headers: Mapping[str, str] | None = None,
        key_hint: str = "",
    ) -> None:
        self.name = name
        key = (api_key or "").strip()  # a key read from a file often ends in a line break
        auth = {"anthropic-version": _VERSION} | ({"x-api-key": key} if key else {})
        self._http = HttpClient(
            name,
            base_url.rstrip("/").removesuffix("/v1"),
            headers={**auth, **(headers or {})},
            secrets=[key],
            retry=retry,
            key_hint=key_hint,
        )

    async def complete(self, request: Request, on_text: OnText | None = None) -> Reply:
        """Answer the request; with `on_text` and n = 1, hand over the text as it comes.

        n > 1 becomes n requests at the same time. What succeeded is returned, and its usage is the sum over
        the successes; only if none did is the first failure raised.
        """
        if request.n <= 1:
            return await self._sample(request, on_text)
        single = replace(request, n=1)
        # With return_exceptions, a cancelled gather also waits for its children to be gone.
        results = await asyncio.gather(
            *(self._sample(single, None) for _ in range(request.n)), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, ProviderError):
                raise result
        replies = [result for result in results if isinstance(result, Reply)]
        if not replies:
            raise next(result for result in results if isinstance(result, ProviderError))
        return Reply(
            completions=tuple(completion for reply in replies for completion in reply.completions),
            usage=sum((reply.usage for reply in replies), NO_USAGE),
            model=replies[0].model,
            retries=sum(reply.retries for reply in replies),
        )

    async def check(self) -> str:
        """How many models the account can use."""
        return await self._http.get("/v1/models?limit=1000", model_count)

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._http.close()

    async def _sample(self, request: Request, on_text: OnText | None) -> Reply:
        body = messages_body(request, stream=on_text is not None)
        return await self._http.complete("/v1/messages", body, request, read_message, StreamedMessage, on_text)


def messages_body(request: Request, *, stream: bool = False) -> dict[str, Any]:
    """The body of a Messages request.

    >>> body = messages_body(Request("claude", (Message("system", "Be brief."), Message("user", "2 + 2?"))))
    >>> body["system"], body["messages"]
    ('Be brief.', [{'role': 'user', 'content': '2 + 2?'}])
    """
    sampling, quirks = request.sampling, request.quirks
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [_message(message) for message in request.messages if message.role != "system"],
        quirks.max_tokens_field: sampling.max_tokens,
        # Claude 4.5 and later refuse temperature and top_p together, and Anthropic advises to set one of
        # them only. A catalogue entry that wants top_p drops temperature and puts top_p into `extra`.
        "temperature": sampling.temperature,
    }
    if system := "\n\n".join(message.text for message in request.messages if message.role == "system"):
        body["system"] = system
    # The API refuses stop sequences of white space only, such as the paper's "\n\n".
    if stop := [sequence for sequence in sampling.stop if sequence.strip()]:
        body["stop_sequences"] = stop
    if stream:
        body["stream"] = True
    return {name: value for name, value in body.items() if name not in quirks.drop} | dict(quirks.extra)


def read_message(payload: Mapping[str, Any]) -> Reply:
    """A whole Messages reply.

    >>> read_message({"content": [{"type": "text", "text": "4"}], "stop_reason": "max_tokens"}).completions
    (Completion(text='4', tokens=(), finish='length'),)
    """
    blocks = payload["content"]
    return _reply(
        "".join(block["text"] for block in blocks if block["type"] == "text"),
        payload.get("stop_reason"),
        payload.get("usage") or {},
        payload.get("model"),
        thought=any(_is_thinking(block) for block in blocks),
    )


class StreamedMessage:
    """A streamed Messages reply, put together event by event."""

    def __init__(self) -> None:
        self.finished = False
        self._texts: list[str] = []
        self._start: Mapping[str, Any] | None = None
        self._usage: dict[str, Any] = {}
        self._stop_reason: str | None = None
        self._thought = False

    def feed(self, payload: Mapping[str, Any]) -> str:
        """Take one event in; the answer text that it adds."""
        match payload.get("type"):
            case "message_start":
                self._start = payload["message"]
                self._usage |= self._start.get("usage") or {}
            case "content_block_start":
                self._thought = self._thought or _is_thinking(payload["content_block"])
            case "content_block_delta" if payload["delta"].get("type") == "text_delta":
                self._texts.append(payload["delta"]["text"])
                return self._texts[-1]
            case "message_delta":
                self._stop_reason = payload["delta"].get("stop_reason")
                # Counts here are totals, not increments; a null one says nothing new.
                self._usage |= {k: v for k, v in (payload.get("usage") or {}).items() if v is not None}
            case "message_stop":
                self.finished = True
        return ""

    def reply(self) -> Reply:
        """The whole reply."""
        if self._start is None:
            raise ValueError("no message_start")
        text, model = "".join(self._texts), self._start.get("model")
        return _reply(text, self._stop_reason, self._usage, model, thought=self._thought)


def _reply(text: str, stop_reason: str | None, usage: Mapping[str, Any], model: Any, *, thought: bool) -> Reply:
    completion = Completion(text, finish=_FINISH.get(stop_reason or "", "stop"))
    return Reply((completion,), _usage(usage, thought=thought), model if isinstance(model, str) else "")


def _usage(usage: Mapping[str, Any], *, thought: bool) -> Usage:
    fresh = count(usage.get("input_tokens"))
    cached = count(usage.get("cache_read_input_tokens")) or 0
    written = count(usage.get("cache_creation_input_tokens")) or 0
    output = count(usage.get("output_tokens"))
    return Usage(
        input=None if fresh is None else fresh + cached + written,
        cached=None if fresh is None else cached,
        output=output,
        # Thinking is billed as output, and not counted apart.
        reasoning=None if thought or output is None else 0,
    )


def _is_thinking(block: Mapping[str, Any]) -> bool:
    return block["type"] in ("thinking", "redacted_thinking")


def _message(message: Message) -> dict[str, Any]:
    if not message.images:
        return {"role": message.role, "content": message.text}
    images = [{"type": "image", "source": _source(image)} for image in message.images]
    return {"role": message.role, "content": [*images, {"type": "text", "text": message.text}]}


def _source(image: Image) -> dict[str, str]:
    if image.url:
        return {"type": "url", "url": image.url}
    data = base64.b64encode(image.data).decode()
    return {"type": "base64", "media_type": image.media_type, "data": data}
