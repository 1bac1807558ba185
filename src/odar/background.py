"""Bridges between threads and the async engine: an event loop in its own thread, and work in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def run_in_background(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end and return its result, whether or not a loop runs in this thread.

    If interrupted (Ctrl-C), it cancels the coroutine and re-raises.
    """
    future = asyncio.run_coroutine_threadsafe(work, _loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """One loop for the process, so that connection pools outlive a single call."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="odar-loop", daemon=True).start()
    return loop


async def run_in_thread(work: Callable[[], T]) -> T:
    """Like `asyncio.to_thread`, but runs the work directly if threads cannot be started because Python exits."""
    try:
        future = asyncio.get_running_loop().run_in_executor(None, work)
    except RuntimeError:
        return work()
    return await future
