"""Threads for requests that call no model: each kind has its own, for one request of each key at a time.

Reads of the dashboard, feedback and counts of tokens thus never wait for, or delay, the bodies of questions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import ParamSpec, TypeVar

from odar.serving.errors import RETRY_S, ApiError
from odar.serving.keys import Key

P = ParamSpec("P")
T = TypeVar("T")

MAX_WAITING = 8
"""Requests of one key that may wait for their turn; a page of the dashboard makes up to four at once."""


class PerKeyThreads:
    """The threads for requests of one kind, and the order in which a key's requests get them.

    Args:
        name: of the threads.
        threads: how many of them.
    """

    def __init__(self, name: str, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, name)
        self._locks: dict[str, asyncio.Lock] = {}
        self._waiting: dict[str, int] = {}

    @asynccontextmanager
    async def turn_of(self, key: Key | None) -> AsyncIterator[None]:
        """Wait until no other request of this key runs; requests without a key count as one key's.

        Raises:
            ApiError: 429 if too many requests of this key wait.
        """
        id_ = "" if key is None else key.id
        waiting = self._waiting.get(id_, 0)
        if waiting > MAX_WAITING:
            message = f"too many requests of this kind: {MAX_WAITING} of this key wait for their turn"
            raise ApiError(429, message, "overloaded", retry_after=RETRY_S)
        self._waiting[id_] = waiting + 1
        lock = self._locks.setdefault(id_, asyncio.Lock())
        try:
            async with lock:
                yield
        finally:
            self._waiting[id_] -= 1
            if not self._waiting[id_]:
                del self._waiting[id_], self._locks[id_]

    async def run(self, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(work, *args, **options))
