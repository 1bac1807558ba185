"""Work for tests on a cluster, in a module so that it can be pickled."""

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
from odar.lab.runs.executor import Work, WorkResult
from odar.lab.runs.journal import Memo, WorkItem


def outcome(item: WorkItem, **more: Any) -> WorkResult:
    """Return the outcome of an item."""
    return WorkResult({"id": item.key, "cost_usd": 0.0, "error": None, "digest": item.digest, **more})


@asynccontextmanager
async def lacks_a_key() -> AsyncIterator[None]:
    """Work that fails to open because a key is missing on the worker."""
    raise SettingsError("provider up needs a key: set UP_KEY")
    yield


@dataclass(frozen=True)
class KillsItsWorker:
    """Work that kills its worker process when it gets the item `key`."""

    key: str

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Work]:
        async def work(item: WorkItem, memo: Memo) -> WorkResult:
            if item.key == self.key:
                os.kill(os.getpid(), signal.SIGKILL)
            return outcome(item)

        yield work


@dataclass(frozen=True)
class KillsItsWorkerAtStart:
    """Work that kills the first `count` processes that open it."""

    folder: Path
    count: int

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Work]:
        started = len(list(self.folder.glob("started-*")))
        (self.folder / f"started-{os.getpid()}").touch()
        if started < self.count:
            os.kill(os.getpid(), signal.SIGKILL)

        async def work(item: WorkItem, memo: Memo) -> WorkResult:
            return outcome(item)

        yield work


@dataclass(frozen=True)
class KeepsLargePart:
    """Work that reports its node, then keeps a part of one megabyte, then ends; files in `folder` start each step."""

    folder: Path

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Work]:
        import ray

        node = ray.get_runtime_context().get_node_id()

        async def work(item: WorkItem, memo: Memo) -> WorkResult:
            (self.folder / f"at-{node}").touch()
            await self._wait_for("keep")
            memo.keep("much", "x" * 2**20)
            await asyncio.sleep(0.5)  # time to send it
            (self.folder / f"kept-{node}").touch()
            await self._wait_for("end")
            return outcome(item, node=node)

        yield work

    async def _wait_for(self, name: str) -> None:
        while not (self.folder / name).exists():
            await asyncio.sleep(0.02)
