"""Wait for a condition instead of sleeping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

LIMIT_S = 60.0  # a guard against waiting forever; no busy machine should reach it
PAUSE_S = 0.005


async def until(condition: Callable[[], object]) -> None:
    """Wait until `condition()` is true, or TimeoutError."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(PAUSE_S)


def wait_until(condition: Callable[[], object]) -> None:
    """Wait as `until` does, without an event loop."""
    limit = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > limit:
            raise TimeoutError
        time.sleep(PAUSE_S)
