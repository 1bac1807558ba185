"""Work for tests of the engine on a cluster: in a module, so that it can be sent to workers."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odar.errors import SettingsError
from odar.recording.executor import Item, Outcome, Work
from odar.recording.journal import Memo


def outcome(item: Item, **more: Any) -> Outcome:
    """A row for an item."""
    return Outcome({"id": item.key, "cost_usd": 0.0, "error": None, "digest": item.digest, **more})


@asynccontextmanager
async def keyless() -> AsyncIterator[None]:
    """Work that cannot begin on a worker's machine."""
    raise SettingsError("provider up needs a key: set UP_KEY")
    yield


@dataclass(frozen=True)
class Deadly:
    """Kills the process that does this item."""

    key: str

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Work]:
        async def work(item: Item, memo: Memo) -> Outcome:
            if item.key == self.key:
                os.kill(os.getpid(), signal.SIGKILL)
            return outcome(item)

        yield work


@dataclass(frozen=True)
class Stillborn:
    """Kills the first so many processes that open it."""

    folder: Path
    deaths: int

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Work]:
        born = len(list(self.folder.glob("born-*")))
        (self.folder / f"born-{os.getpid()}").touch()
        if born < self.deaths:
            os.kill(os.getpid(), signal.SIGKILL)

        async def work(item: Item, memo: Memo) -> Outcome:
            return outcome(item)

        yield work


@dataclass(frozen=True)
class KeepsMuch:
    """Says where it is; keeps a megabyte when it is told to, and ends when it is told to. Told by files."""

    folder: Path

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Work]:
        import ray

        node = ray.get_runtime_context().get_node_id()

        async def work(item: Item, memo: Memo) -> Outcome:
            (self.folder / f"at-{node}").touch()
            await self._told("keep")
            memo.keep("much", "x" * 2**20)
            await asyncio.sleep(0.5)  # it is sent
            (self.folder / f"kept-{node}").touch()
            await self._told("end")
            return outcome(item, node=node)

        yield work

    async def _told(self, what: str) -> None:
        while not (self.folder / what).exists():
            await asyncio.sleep(0.02)
