"""Calls between threads and event loops: a coroutine from sync code, and blocking work from async code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from functools import cache, partial
from typing import Any, TypeVar

T = TypeVar("T")
MAX_INLINE_BYTES = 32_000
"""Largest text that is parsed in the event loop; starting a thread would take longer."""


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
    """Return the event loop of the process, which is shared so that connection pools outlive a call."""
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

    There is one thread for all: several would take the interpreter's lock from the event loop, and more memory.
    """
    return work() if size <= MAX_INLINE_BYTES else await run_in_thread(work, _json_thread())


@cache
def _json_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "odar-json")
