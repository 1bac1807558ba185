"""OpenAI chat completions, as spoken by OpenAI, vLLM, llama.cpp, Ollama, DeepSeek, Together and many more."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from odar.providers.base import OnDelta, Reply, Request
from odar.providers.http import HttpClient, Refusals, RetryPolicy, describe_models, listed_models
from odar.providers.openai_wire import StreamedReply, chat_body, read_forwarded, read_reply
from odar.providers.prompt_logprobs import read_scores, score_body


class OpenAIProvider:
    """Models behind a chat-completions API.

    Args:
        name: the name it is configured under.
        base_url: where `/chat/completions` is found, such as https://api.openai.com/v1.
        api_key: sent as a bearer token; None for servers without one.
        retry: when to try again.
        headers: further headers.
        key_hint: what to tell a user whose key is refused.

    >>> OpenAIProvider("local", "http://localhost:8080/v1").name
    'local'
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str | None = None,
        *,
        retry: RetryPolicy | None = None,
        headers: Mapping[str, str] | None = None,
        key_hint: str = "",
    ) -> None:
        self.name = name
        self._refusals = Refusals()
        key = (api_key or "").strip()  # a key read from a file often ends in a line break
        auth = {"authorization": f"Bearer {key}"} if key else {}
        self._http = HttpClient(
            name, base_url, headers={**auth, **(headers or {})}, secrets=[key], retry=retry, key_hint=key_hint
        )

    async def complete(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        """Answer the request; with `on_delta` and n = 1, hand over the text as it comes.

        A server may return fewer completions than asked for; some ignore `n`.
        """
        on_delta = on_delta if request.n == 1 else None

        async def send(request: Request) -> Reply:
            body = chat_body(request, stream=on_delta is not None)
            return await self._http.complete(
                "/chat/completions", body, request, read_reply, StreamedReply, on_delta
            )

        return await self._refusals.ask(request, send)

    async def score(self, request: Request, text: str) -> Reply:
        """The text with its log-probabilities as the next turn; vLLM can do it, and few others."""
        body = score_body(request, text)
        interpret = partial(read_scores, text=text)
        return await self._http.complete("/chat/completions", body, request, interpret, StreamedReply, None)

    async def forward(self, address: str, body: Mapping[str, Any], request: Request) -> Reply:
        """Send a body to an address of the server, such as /embeddings; the reply holds what came back."""
        return await self._http.complete(address, dict(body), request, read_forwarded, StreamedReply, None)

    async def check(self, model: str = "") -> str:
        """How many models the server lists; ProviderError if this one is not among them."""
        return describe_models(await self._http.get("/models", listed_models), model, self.name)

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._http.close()
