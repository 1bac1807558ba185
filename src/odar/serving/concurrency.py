"""Limits on concurrent requests, on their size in memory and on threads, with a fair share for each key."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from odar.errors import KeyRefused
from odar.serving.budgets import bucket_level
from odar.serving.errors import ApiError
from odar.serving.keys import NO_KEY, RETRY_S, Key
from odar.serving.workers import Workers

T = TypeVar("T")
MAX_WAITING = 8
"""Requests of one key that may wait for a thread; a page of the dashboard makes up to four at once."""


class ConcurrencyLimit:
    """Counts requests in flight, and rejects further ones when their headers have arrived, before their bodies.

    A key can hold as many slots, and as many bytes of requests, as it leaves free: one key alone half of them, two
    a third each. Its limits on parallel requests and requests a minute are checked here for this process, and again
    by the store for all processes once the body is known (`odar.serving.budgets`). Failed requests count too. Each
    worker has an equal part of `max_bytes`.

    >>> concurrency_limit = ConcurrencyLimit(limit=1)
    >>> concurrency_limit.acquire()
    >>> concurrency_limit.in_flight
    1
    """

    def __init__(
        self,
        limit: int,
        clock: Callable[[], float] = time.monotonic,
        max_bytes: float = math.inf,
        workers: Workers | None = None,
    ) -> None:
        self.limit = limit
        self._workers = workers or Workers()
        self.draining = False
        self._clock = clock
        self._in_flight_of: Counter[str] = Counter()
        """Requests in flight of each key."""
        self._max_bytes = max_bytes / self._workers.count
        self._bytes_of: Counter[str] = Counter()
        """Bytes of the bodies of requests in flight, by key."""
        self._buckets_of: dict[str, tuple[float, float]] = {}
        """The level of each key's bucket of requests, and when it was computed."""

    @property
    def in_flight(self) -> int:
        """Requests in flight of this worker."""
        return self._workers.in_flight[self._workers.number]

    def acquire(self, key: Key = NO_KEY) -> None:
        """Count a new request of a key.

        Raises:
            ApiError: 429 if there are too many requests in all or of this key, 503 during shutdown.
            KeyRefused: a limit of the key is used up.
        """
        if self.draining:
            raise ApiError(503, "the gateway is shutting down", "draining", retry_after=RETRY_S)
        free = self.limit - sum(self._workers.in_flight)
        if free <= 0:
            raise _overloaded(f"requests: gateway.max_in_flight = {self.limit} are in flight")
        own = self._in_flight_of[key.id]
        key.check_parallel(own)
        # a key has at most as many slots as it leaves free, of which each worker has an equal share
        if key is not NO_KEY and own * self._workers.count >= free:
            busy = f"{own} are in flight, and {free} more must stay free for others"
            raise _overloaded(f"requests of this key: {busy}")
        self.count_request(key)
        self._in_flight_of[key.id] += 1
        self._workers.in_flight[self._workers.number] += 1

    def hold_memory(self, key: Key, size: int) -> None:
        """Count bytes of a body that is about to be read; raise ApiError 429 if there are too many.

        If no other body is in memory, one of any size is accepted.
        """
        own = self._bytes_of[key.id]
        free = self._max_bytes - self._bytes_of.total()
        share = size if key is NO_KEY or not own else own + size
        if self._bytes_of.total() and share > free:
            limit = f"{self._max_bytes / 1e6:g} MB for all, by gateway.max_body_mb"
            raise _overloaded(f"large requests: {limit}, of which {free / 1e6:.0f} are free")
        self._bytes_of[key.id] += size

    def release(self, key: Key = NO_KEY, size: int = 0) -> None:
        """Count a finished request, and the bytes of its body."""
        self._workers.in_flight[self._workers.number] -= 1
        for counter, count in ((self._bytes_of, size), (self._in_flight_of, 1)):
            counter[key.id] -= count
            if not counter[key.id]:
                del counter[key.id]

    def count_request(self, key: Key) -> None:
        """Count a request against the rate of its key; raise KeyRefused if it is used up."""
        rate = key.rate_per_min
        if rate is None:
            return
        now = self._clock()
        level, at = self._buckets_of.get(key.id, (None, now))
        level = bucket_level(rate, level, now - at)
        try:
            key.check_rate(level)
        except KeyRefused as refused:
            refused.rates = [("requests", rate, level)]
            raise
        self._buckets_of[key.id] = (level - 1, now)


class PerKeyThreads:
    """Threads for requests of one kind that call no model, for one request of each key at a time.

    Reads of the dashboard, feedback and counts of tokens thus never wait for, or delay, the bodies of questions.
    """

    def __init__(self, name: str, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, name)
        self._locks: dict[str, asyncio.Lock] = {}
        self._waiting: Counter[str] = Counter()

    @asynccontextmanager
    async def turn_of(self, key: Key) -> AsyncIterator[None]:
        """Wait until no other request of this key runs.

        Raises:
            ApiError: 429 if too many requests of this key wait.
        """
        id_ = key.id
        if self._waiting[id_] > MAX_WAITING:
            raise _overloaded(f"requests of this kind: {MAX_WAITING} of this key wait for their turn")
        self._waiting[id_] += 1
        lock = self._locks.setdefault(id_, asyncio.Lock())
        try:
            async with lock:
                yield
        finally:
            self._waiting[id_] -= 1
            if not self._waiting[id_]:
                del self._waiting[id_], self._locks[id_]

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _overloaded(message: str) -> ApiError:
    return ApiError(429, f"too many {message}", "overloaded", retry_after=RETRY_S)
