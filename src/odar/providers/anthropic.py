"""The Anthropic Messages API. It returns no log-probabilities, and one sample a request."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from odar.providers.anthropic_wire import StreamedMessage, messages_body, read_message
from odar.providers.base import OnDelta, Reply, Request
from odar.providers.http import HttpProvider

_VERSION = "2023-06-01"
_THOUGHTS = 2_000
"""Number of tool calls whose thinking is remembered until their results arrive."""


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
        """The headers that identify us."""
        return {"anthropic-version": _VERSION} | ({"x-api-key": key} if key else {})

    async def complete(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        """Answer the request with one sample, whatever `n` is; with `on_delta`, hand over the text as it comes."""
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
