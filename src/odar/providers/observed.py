"""A provider whose calls an observer sees."""

from __future__ import annotations

from typing import Any

from odar.observer import Observer, observed
from odar.providers.base import OnText, Provider, Reply, Request
from odar.providers.pool import Guard


class ObservedProvider:
    """A provider, each of its calls a step of the query it is for; whatever else it can do, it does as before."""

    def __init__(self, provider: Provider) -> None:
        self.name = provider.name
        self._provider = provider

    @observed("chat")
    async def complete(self, request: Request, on_text: OnText | None = None) -> Reply:
        """Answer the request."""
        return await self._provider.complete(request, on_text)

    async def check(self) -> str:
        """The provider's own word."""
        return await self._provider.check()

    async def close(self) -> None:
        """Close the provider."""
        await self._provider.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)


def observed_guard(guard: Guard | None, observer: Observer | None) -> Guard | None:
    """The guard with its calls observed, refusals of a breaker included; unchanged where nobody watches."""
    if observer is None:
        return guard
    return lambda provider: ObservedProvider(guard(provider) if guard else provider)
