"""Estimates made in this process."""

from __future__ import annotations

from typing import Protocol

from odar.background import Once
from odar.difficulty.base import Estimator
from odar.difficulty.sticky import estimate_turn
from odar.types import Estimate, Query


class Estimates(Protocol):
    """Gives the engine the difficulty of a query."""

    async def __call__(self, query: Query) -> Estimate:
        """How hard its last turn looks, in the light of the earlier ones."""
        ...

    async def close(self) -> None:
        """Let go of what was needed for it."""
        ...


class Here:
    """Estimates in the event loop, which takes about a millisecond; what the first one loads is loaded in a thread.

    >>> from odar.difficulty.base import open_estimator
    >>> import asyncio
    >>> asyncio.run(Here(open_estimator("constant"))(Query("Why?"))).difficulty
    0.5
    """

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator
        self._loading = Once(lambda: estimator.estimate(Query("Ready?")))

    async def __call__(self, query: Query) -> Estimate:
        """The estimate. An estimator may load a parser at its first one: a loop must not wait for that, and those
        who come meanwhile must not each load one too."""
        await self._loading.wait()
        return estimate_turn(self._estimator, query)

    async def close(self) -> None:
        """Nothing to let go of."""
