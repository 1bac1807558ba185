"""A provider whose calls an observer sees."""

from __future__ import annotations

from odar.observer import Observer, observed
from odar.providers.base import OnDelta, ProviderAround, Reply, Request, score_text
from odar.providers.pool import Guard


class ObservedProvider(ProviderAround):
    """A provider, each of its calls a step of the query it is for."""

    @observed("chat")
    async def complete(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        """Answer the request."""
        return await self._provider.complete(request, on_delta)

    @observed("score")
    async def score(self, request: Request, text: str) -> Reply:
        """Score a text, where the provider can."""
        return await score_text(self._provider, request, text)


def observed_guard(guard: Guard | None, observer: Observer | None) -> Guard | None:
    """The guard with its calls observed, refusals of a breaker included; unchanged where nobody watches."""
    if observer is None:
        return guard
    return lambda provider: ObservedProvider(guard(provider) if guard else provider)
