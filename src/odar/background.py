"""Calls between threads and event loops: a coroutine from sync code, and blocking work from async code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


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


async def run_in_thread(work: Callable[[], T]) -> T:
    """Run the work in a thread, like `asyncio.to_thread`; run it directly while Python exits."""
    try:
        future = asyncio.get_running_loop().run_in_executor(None, work)
    except RuntimeError:
        return work()
    return await future
