"""Work on a Ray cluster: this process sends items to workers, and alone writes the journal.

A worker sends each reply as soon as it arrives, and the result last. If the worker is lost in between, the item
and its replies so far are sent to another worker: no reply that has reached this process is paid for again.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from itertools import count
from typing import Any

from odar.errors import OdarError, SettingsError, one_line
from odar.files import install_command
from odar.lab.runs.executor import OpenWork, Work, WorkResult
from odar.lab.runs.journal import Memo, WorkItem, write_in_thread

LOCAL = "local"
"""The address that starts a cluster on this machine."""
ATTEMPTS = 4
"""Maximum number of workers that an item is sent to."""
_ITEMS_AT_ONCE = 1000
"""Concurrency of a worker; the driver decides how many items run at once."""
_CONNECT_TIMEOUT_S = 5.0


class RayWorker:
    """A worker process on the cluster."""

    def __init__(self, open_work: OpenWork) -> None:
        self._open_work = open_work
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._work: Work | None = None

    async def do(self, item: WorkItem, known: dict[str, Any]) -> AsyncIterator[tuple[str, Any] | WorkResult]:
        """Yield the replies of an item with their names as they arrive, and its result last."""
        async with self._opening:
            if self._work is None:
                self._work = await self._stack.enter_async_context(self._open_work())
        loop = asyncio.get_running_loop()
        replies: asyncio.Queue[tuple[str, Any] | None] = asyncio.Queue()

        def keep(name: str, value: Any) -> None:
            loop.call_soon_threadsafe(replies.put_nowait, (name, value))

        doing = asyncio.ensure_future(self._work(item, Memo(known, keep)))
        doing.add_done_callback(lambda _: loop.call_soon(replies.put_nowait, None))
        try:
            while (reply := await replies.get()) is not None:
                yield reply
            yield await doing
        finally:
            doing.cancel()
            await asyncio.gather(doing, return_exceptions=True)

    async def close(self) -> None:
        """Close connections and write the traces that are queued."""
        await self._stack.aclose()


def on_ray(open_work: OpenWork, address: str | None = None, workers: int = 2) -> OpenWork:
    """Work that is done on a Ray cluster.

    Args:
        open_work: opened by every worker; odar must be installed there, in this version.
        address: the cluster's address; "local" starts one on this machine, None looks for a running one.
        workers: worker processes.

    Opening the work raises SettingsError if Ray is not installed, or there is no cluster at the address.
    """

    @asynccontextmanager
    async def opened() -> AsyncIterator[Work]:
        ray = _connect(address)
        pool = _Workers(ray, open_work, workers)
        try:
            yield pool.do
            await asyncio.gather(*(each.close.remote() for each in pool.workers), return_exceptions=True)
        finally:
            ray.shutdown()

    return opened


class _Workers:
    """The worker processes, as seen by this process."""

    def __init__(self, ray: Any, open_work: OpenWork, workers: int) -> None:
        self._ray = ray
        self._open_work = open_work
        self._nodes = count()
        self.workers = [self._start() for _ in range(workers)]
        self._items = [0] * workers
        """Items under way on each worker."""

    def _start(self) -> Any:
        """Start a worker on the next node; Ray itself would place it at random, because it claims no CPU."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        nodes = [node["NodeID"] for node in self._ray.nodes() if node["Alive"]]
        place = NodeAffinitySchedulingStrategy(nodes[next(self._nodes) % len(nodes)], soft=False)
        # They wait for replies most of the time, and if they claimed a CPU, a busy cluster would never start them.
        # We replace workers and repeat items: a retry of Ray's in addition would pay twice.
        actor = self._ray.remote(num_cpus=0, max_concurrency=_ITEMS_AT_ONCE, max_restarts=0, max_task_retries=0)
        return actor(RayWorker).options(scheduling_strategy=place).remote(self._open_work)

    async def do(self, item: WorkItem, memo: Memo) -> WorkResult:
        """Do one item on a worker; if the worker is lost, on another one.

        Raises:
            OdarError: ATTEMPTS workers were lost.
        """
        errors = self._ray.exceptions
        losses = (
            errors.RayActorError,
            errors.ActorUnschedulableError,
            errors.ObjectLostError,
            errors.WorkerCrashedError,
            errors.NodeDiedError,
            errors.OutOfMemoryError,  # Ray evicts workers if a machine is low on memory
        )
        for losses_before in range(ATTEMPTS):
            index = min(range(len(self.workers)), key=self._items.__getitem__)
            worker = self.workers[index]
            self._items[index] += 1
            try:
                result = await self._do_on(worker, item, memo)
                if losses_before and "cost_usd" in result.row:
                    result.row["cost_usd"] = None  # calls of a lost worker may have been billed
                return replace(result, lost=losses_before)
            except losses as error:
                lost = error
                if self.workers[index] is worker:  # else another of its items has replaced it
                    self._ray.kill(worker)  # so that no item is done twice
                    self.workers[index] = self._start()
            except errors.RayTaskError as error:
                if isinstance(error.cause, OdarError):  # such as a key that the worker's machine does not have
                    raise error.cause from None
                raise
            finally:
                self._items[index] -= 1
        raise OdarError(f"item {item.key!r}: its worker was lost {ATTEMPTS} times: {one_line(lost, 200)}")

    async def _do_on(self, worker: Any, item: WorkItem, memo: Memo) -> WorkResult:
        async for reference in worker.do.options(num_returns="streaming").remote(item, memo.known):
            message: tuple[str, Any] | WorkResult = await reference
            if isinstance(message, WorkResult):
                return message
            await write_in_thread(memo.keep, *message)
        raise OdarError(f"item {item.key!r}: its worker ended without an outcome")


def _connect(address: str | None) -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        install = install_command("ray")
        raise SettingsError(f"--engine ray needs Ray: {install}, here and on the cluster") from None
    address = address or "auto"
    options: dict[str, Any] = {"include_dashboard": False} if address == LOCAL else {}
    try:
        if "://" in address:
            raise ValueError("Ray Client is not supported")
        host, colon, port = address.rpartition(":")
        if colon:  # fail within seconds if there is no server: Ray itself tries for minutes
            socket.create_connection((host, int(port)), _CONNECT_TIMEOUT_S).close()
        ray.init(address, namespace="odar", log_to_driver=False, configure_logging=False, **options)
    except Exception as error:  # Ray raises nothing narrower for a node that did not come up in time
        ray.shutdown()
        raise SettingsError(
            f"no Ray cluster at {address} ({one_line(error, 200)}); start one with `ray start --head` "
            "and give its host:port, or --ray-address local"
        ) from None
    return ray
