"""Estimates made in this process."""

from __future__ import annotations

import asyncio
from typing import Protocol

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
    """Estimates in the event loop, which takes about a millisecond; the first one in a thread.

    >>> from odar.difficulty.base import open_estimator
    >>> asyncio.run(Here(open_estimator("constant"))(Query("Why?"))).difficulty
    0.5
    """

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator
        self._warm = False

    async def __call__(self, query: Query) -> Estimate:
        """The estimate; an estimator may load a parser at its first one, and a loop must not wait for that."""
        if self._warm:
            return estimate_turn(self._estimator, query)
        estimate = await asyncio.to_thread(estimate_turn, self._estimator, query)
        self._warm = True
        return estimate

    async def close(self) -> None:
        """Nothing to let go of."""
