"""Several providers as one: each request goes to the one with the least to do.

For long runs on the local model. Two copies of it with a thread each do twice the work of one, and degrade
gracefully on a busy machine; two threads of one copy do half as much again, and wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from odar.providers.base import OnDelta, Provider, Reply, Request, prepare_model, score_text


class Several:
    """A provider made of equals: it matters to nobody which of them answers.

    Args:
        members: at least one; all must answer the same request in the same way.
    """

    def __init__(self, members: Sequence[Provider]) -> None:
        self.name = members[0].name
        self._members = tuple(members)
        self._busy = [0] * len(members)

    async def complete(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        """Answer the request by the member with the fewest in flight."""
        with self._least_busy() as member:
            return await member.complete(request, on_delta)

    async def score(self, request: Request, text: str) -> Reply:
        """Score the text likewise, where the members can."""
        with self._least_busy() as member:
            return await score_text(member, request, text)

    async def prepare(self, model: str) -> None:
        """Have the first member prepare the model; the others share its files."""
        await prepare_model(self._members[0], model)

    async def check(self) -> str:
        """What the first one says of itself."""
        return await self._members[0].check()

    async def close(self) -> None:
        """Close all of them."""
        await asyncio.gather(*(member.close() for member in self._members))

    @contextmanager
    def _least_busy(self) -> Iterator[Provider]:
        chosen = min(range(len(self._members)), key=self._busy.__getitem__)
        self._busy[chosen] += 1
        try:
            yield self._members[chosen]
        finally:
            self._busy[chosen] -= 1
