"""Two agents at once, and nothing left running when one of them fails."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def both(first: Coroutine[Any, Any, T], second: Coroutine[Any, Any, T]) -> tuple[T, T]:
    """Both at once; if one raises, the other is cancelled and awaited: nothing is left running and spending."""
    tasks = [asyncio.ensure_future(first), asyncio.ensure_future(second)]
    try:
        one, two = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return one, two
