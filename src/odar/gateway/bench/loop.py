"""The fastest event loop there is: on two cores, what measures must not take from what is measured."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_fast(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, on uvloop where there is one.

    >>> run_fast(asyncio.sleep(0, "done"))
    'done'
    """
    try:
        from uvloop import new_event_loop
    except ImportError:  # Windows
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)
