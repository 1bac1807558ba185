"""Calls between threads and event loops: a coroutine from sync code, and blocking work from async code."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import cache, partial
from typing import Any, TypeVar

T = TypeVar("T")
MAX_INLINE_BYTES = 32_000
"""Largest text that is parsed in the event loop; starting a thread would take longer."""
_VERY_LARGE_BYTES = 1_000_000
CURRENT_KEY: ContextVar[str] = ContextVar("odar_key", default="")
"""Id of the API key that asks the question; empty without keys."""


def run_in_background(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a background thread and return its result; works inside a running event loop too.

    An interrupt (Ctrl-C) cancels the coroutine.
    """
    future = asyncio.run_coroutine_threadsafe(work, _loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """The event loop of the process, which is shared so that connection pools outlive a call."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="odar-loop", daemon=True).start()
    return loop


async def run_in_thread(work: Callable[[], T], pool: Executor | None = None) -> T:
    """Run the work in a thread, like `asyncio.to_thread`; run it directly while Python exits."""
    in_context: Callable[[], T] = partial(copy_context().run, work)
    try:
        future = asyncio.get_running_loop().run_in_executor(pool, in_context)
    except RuntimeError:
        return work()
    try:
        return await future
    finally:
        del future  # the traceback of its error refers to this frame: break the reference cycle


async def run_by_size(size: int, work: Callable[[], T]) -> T:
    """Read or write a text of about this many bytes: if they are many, in a thread.

    Large texts have one thread and very large ones another, for which no other text waits. More threads would take
    the interpreter's lock from the event loop, and more memory.
    """
    return work() if size <= MAX_INLINE_BYTES else await run_in_thread(work, _thread(size > _VERY_LARGE_BYTES))


@cache
def _thread(very_large: bool) -> Executor:
    return FairExecutor(1, "odar-very-large" if very_large else "odar-large")


class FairExecutor(Executor):
    """Threads that work for each API key in turn, however much work of one of them waits."""

    def __init__(self, threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, name)
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = {}
        """By key; the key whose turn it is comes first."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        key = CURRENT_KEY.get()
        with self._lock:
            self._waiting.setdefault(key, deque()).append((future, partial(work, *args, **options)))
        self._threads.submit(self._run_next)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._threads.shutdown(wait, cancel_futures=cancel_futures)

    def _run_next(self) -> None:
        with self._lock:
            key, queue = next(iter(self._waiting.items()))
            future, work = queue.popleft()
            del self._waiting[key]
            if queue:
                self._waiting[key] = queue  # now the last
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)
            finally:
                del future, work  # the error's traceback refers to this frame: break the reference cycle
