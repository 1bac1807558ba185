"""The Anthropic Messages API. It returns no log-probabilities, and one sample a request."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from odar.providers.anthropic_wire import StreamedMessage, messages_body, read_message
from odar.providers.base import OnDelta, Reply, Request
from odar.providers.connections import SYSTEM_TLS, TlsFiles
from odar.providers.http import HttpClient, Refusals, RetryPolicy, describe_models, listed_models

_VERSION = "2023-06-01"
_THOUGHTS = 2_000
"""Number of tool calls whose thinking is remembered until their results arrive."""


class AnthropicProvider:
    """Claude models.

    Args:
        name: the name it is configured under.
        base_url: the server, with or without its closing /v1.
        api_key: sent as x-api-key.
        retry: when to try again.
        headers: further headers.
        key_hint: what to tell a user whose key is rejected.
        tls: certificates to trust and to identify ourselves with.

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
        tls: TlsFiles = SYSTEM_TLS,
    ) -> None:
        self.name = name
        self._refusals = Refusals()
        self._thoughts: OrderedDict[str, list[Any]] = OrderedDict()
        key = (api_key or "").strip()  # a key read from a file often ends in a line break
        auth = {"anthropic-version": _VERSION} | ({"x-api-key": key} if key else {})
        self._betas = [v for n, v in (headers or {}).items() if n.lower() == "anthropic-beta"]
        self._http = HttpClient(
            name,
            base_url.rstrip("/").removesuffix("/v1"),
            headers={**auth, **(headers or {})},
            secrets=[key],
            retry=retry,
            key_hint=key_hint,
            tls=tls,
        )

    async def complete(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        """Answer the request with one sample, whatever `n` is; with `on_delta`, hand over the text as it comes."""
        return await self._refusals.ask(request, lambda request: self._send(request, on_delta))

    async def check(self, model: str = "") -> str:
        """How many models the server lists; ProviderError if this one is not among them."""
        return describe_models(await self._http.get("/v1/models?limit=1000", listed_models), model, self.name)

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._http.close()

    async def _send(self, request: Request, on_delta: OnDelta | None) -> Reply:
        body = messages_body(request, stream=on_delta is not None, thoughts=self._thoughts)
        betas = ",".join([*self._betas, *request.options.betas])
        reply = await self._http.complete(
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
