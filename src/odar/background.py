"""Bridges between threads and the async engine: an event loop in a thread of its own, and work done once in one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def run_in_background(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end and return its result, whether or not a loop runs in this thread.

    Interrupted (Ctrl-C), it cancels the work before it lets the interruption through.

    >>> async def double(x: int) -> int:
    ...     return 2 * x
    >>> run_in_background(double(21))
    42
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
    """`asyncio.to_thread`, also while the interpreter exits: its threads take no work then, so it is done here.

    >>> run_in_background(run_in_thread(lambda: 42))
    42
    """
    try:
        future = asyncio.get_running_loop().run_in_executor(None, work)
    except RuntimeError:
        return work()
    return await future


class Once:
    """Slow work that is done once, in a thread, however many coroutines of however many loops wait for it.

    Without it, questions that come in while something loads would each load it, all at the same time.

    >>> once = Once(lambda: print("loading"))
    >>> run_in_background(once.wait()), run_in_background(once.wait()), once.done
    loading
    (None, None, True)
    """

    def __init__(self, work: Callable[[], object]) -> None:
        self.done = False
        self._work = work
        self._lock = threading.Lock()
        self._running: Future[None] | None = None

    async def wait(self) -> None:
        """Return when it is done; raise what it raised, and then the next one to wait tries it again."""
        if self.done:
            return
        with self._lock:
            if self._running is None:
                self._running = Future()
                self._running.set_running_or_notify_cancel()  # a waiter that leaves cannot cancel it for the others
                threading.Thread(target=self._run, args=(self._running,), name="odar-once", daemon=True).start()
            running = self._running
        await asyncio.wrap_future(running)

    def _run(self, running: Future[None]) -> None:
        try:
            self._work()
        except BaseException as error:  # whatever it is, it belongs to whoever waits
            with self._lock:
                self._running = None
            running.set_exception(error)
        else:
            self.done = True
            running.set_result(None)
