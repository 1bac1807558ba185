"""A process of the cluster: does items, and sends what they pay for as it comes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from odar.batch.executor import Item, OpenWork, Outcome, Work
from odar.batch.journal import Memo

Message = list[tuple[str, Any]] | Outcome
"""Names and values for the item's memo; or how it ended."""


class Worker:
    """One process on the cluster, for as long as the driver wants it.

    Args:
        open_work: opens the work, once.
    """

    def __init__(self, open_work: OpenWork) -> None:
        self._open_work = open_work
        self._stack = contextlib.AsyncExitStack()
        self._work: Work | None = None

    async def open(self) -> None:
        """Open what the work needs; the driver sends items when this is done."""
        self._work = await self._stack.enter_async_context(self._open_work())

    async def do(self, item: Item, known: dict[str, Any]) -> AsyncIterator[Message]:
        """What the item pays for, by name, as it comes; its outcome last."""
        assert self._work is not None, "open it first"
        parts: list[tuple[str, Any]] = []
        news = asyncio.Event()

        def keep(name: str, value: Any) -> None:
            parts.append((name, value))
            news.set()

        doing = asyncio.ensure_future(self._work(item, Memo(known, keep)))
        doing.add_done_callback(lambda _: news.set())
        try:
            while parts or not doing.done():
                if parts:  # all there are in one message: what has not left this process dies with it
                    sent = parts.copy()
                    parts.clear()
                    yield sent
                else:
                    news.clear()
                    await news.wait()
            yield await doing
        finally:
            doing.cancel()
            await asyncio.gather(doing, return_exceptions=True)

    async def close(self) -> None:
        """Let go of connections, write traces that are queued."""
        await self._stack.aclose()
