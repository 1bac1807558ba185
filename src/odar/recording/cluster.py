"""Runs items on a Ray cluster: workers on its machines, and one limiter for all of them.

Only the driver (this process) writes the journal. A worker sends each reply to it as soon as it arrives, and the
outcome last; if the worker is lost in between, the item is sent to another one together with the replies so far.

Each item gets one row, and no reply that has reached the driver is paid for again; requests that a lost worker had
under way, or replies that it had not sent, may be. `again` counts such restarts, `again_usd` is the most that they
may have cost.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from odar.errors import OdarError, SettingsError, one_line
from odar.recording.executor import Item, OpenWork, Outcome, Work
from odar.recording.journal import Memo, save
from odar.recording.limits import ITEMS_AT_ONCE, LEASE_S, NAMESPACE, Rate, RayLimiter

Message = list[tuple[str, Any]] | Outcome
"""Names and values for the item's memo, or the outcome."""


class RayWorker:
    """A worker process on the cluster.

    Args:
        open_work: opens the work, once.
    """

    def __init__(self, open_work: OpenWork) -> None:
        self._open_work = open_work
        self._stack = contextlib.AsyncExitStack()
        self._work: Work | None = None

    async def open(self) -> None:
        """Open what the work needs; the driver sends items after that."""
        self._work = await self._stack.enter_async_context(self._open_work())

    async def do(self, item: Item, known: dict[str, Any]) -> AsyncIterator[Message]:
        """Yield the replies of an item by name as they arrive, and its outcome last."""
        assert self._work is not None, "open it first"
        parts: list[tuple[str, Any]] = []
        news, loop = asyncio.Event(), asyncio.get_running_loop()

        def keep(name: str, value: Any) -> None:
            parts.append((name, value))
            loop.call_soon_threadsafe(news.set)

        doing = asyncio.ensure_future(self._work(item, Memo(known, keep)))
        doing.add_done_callback(lambda _: news.set())
        try:
            while parts or not doing.done():
                if parts:  # all in one message: what has not left this process is lost with it
                    sent = parts.copy()
                    parts.clear()
                    yield sent
                else:
                    news.clear()
                    await news.wait()
            yield await doing
        finally:
            doing.cancel()
            await asyncio.gather(doing, return_exceptions=True)

    async def close(self) -> None:
        """Close connections and write the traces that are queued."""
        await self._stack.aclose()


LOCAL = "local"
ATTEMPTS = 4
"""Workers that may die over one item: then the item, or the cluster, is at fault."""
STARTS = 5
"""Failed starts in a row of one worker: a machine may be busy or go down."""
_LOCAL_STARTS = 3
_REACHABLE_S = 5.0


class RayExecutor:
    """Does the work on a Ray cluster.

    Args:
        open_work: sent to every worker; odar must be installed there, in this version.
        rates: limits by provider, which hold for all workers and all batches on the cluster together.
        lease_s: the longest that an item takes.
        address: the cluster, as Ray has it; "local" starts one on this machine, None looks for a running one.
        workers: worker processes.

    Raises:
        SettingsError: Ray is not installed, or there is no cluster at the address.
    """

    def __init__(
        self,
        open_work: OpenWork,
        rates: Mapping[str, Rate] | None = None,
        lease_s: float = LEASE_S,
        *,
        address: str | None = None,
        workers: int = 2,
    ) -> None:
        self._ray = ray = _connect(address)
        self._open_work = open_work
        self._actor = ray.remote(
            num_cpus=0,  # they wait for replies most of the time, and a busy cluster would never start them
            max_concurrency=ITEMS_AT_ONCE,
            max_restarts=0,  # we restart workers and items ourselves: a retry of Ray's in addition pays twice
            max_task_retries=0,
        )(RayWorker)
        errors = ray.exceptions
        self._losses = (
            errors.RayActorError,
            errors.ActorUnschedulableError,
            errors.ObjectLostError,
            errors.WorkerCrashedError,
            errors.NodeDiedError,
        )
        """Raised if a worker died or cannot be reached, or if its machine was lost with what it had sent."""
        self._workers: list[_WorkerHandle] = []
        for _ in range(workers):
            self._start_worker()
        self.again = 0
        self.again_usd: float | None = 0.0
        self.limiter = RayLimiter(ray, rates or {}, lease_s)

    async def do(self, item: Item, memo: Memo) -> Outcome:
        """Do one item on a worker; if that is lost, on the next.

        Raises:
            OdarError: several workers died over the item, or no worker can be started.
        """
        lost = 0
        while lost < ATTEMPTS:
            handle = min(self._workers, key=lambda each: (each.items, not each.opened))
            handle.items += 1
            try:
                await self._open(handle)
                return await self._on(handle, item, memo)
            except self._losses as error:
                self._replace(handle, error)
                if handle.opened:  # else nothing was asked yet, and the item is not at fault
                    lost += 1
                    self._count_lost(item)
            except self._ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, OdarError):  # such as a key that the worker's machine does not have
                    raise error.cause from None
                raise
            finally:
                handle.items -= 1
        raise OdarError(f"item {item.key!r}: {ATTEMPTS} workers died over it; see the logs of the Ray cluster")

    async def _open(self, handle: _WorkerHandle) -> None:
        """Wait until the worker is ready."""
        if not handle.opened:
            await handle.ready
            handle.opened = True

    async def _on(self, handle: _WorkerHandle, item: Item, memo: Memo) -> Outcome:
        async for reference in handle.worker.do.options(num_returns="streaming").remote(item, memo.known):
            message: Message = await reference
            if isinstance(message, Outcome):
                return message
            for name, value in message:
                await save(memo.keep, name, value)
        raise OdarError(f"item {item.key!r}: its worker ended without an outcome")

    def _count_lost(self, item: Item) -> None:
        """Count an item whose worker was lost; its requests under way cost at most what the whole item may."""
        unknown = self.again_usd is None or item.worst_cost_usd is None
        self.again += 1
        self.again_usd = None if unknown else (self.again_usd or 0.0) + (item.worst_cost_usd or 0.0)

    def _start_worker(self, failed_starts: int = 0, avoid: str = "") -> None:
        """Start a worker on the machine that has the fewest workers, if possible not on `avoid`.

        Ray places actors that claim no CPU at random unless a node is given.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        taken = Counter(handle.node for handle in self._workers)
        nodes = [each["NodeID"] for each in self._ray.nodes() if each["Alive"]]
        node = min(nodes, key=lambda each: (each == avoid, taken[each]))
        place = NodeAffinitySchedulingStrategy(node, soft=False)
        worker = self._actor.options(scheduling_strategy=place).remote(self._open_work)
        self._workers.append(_WorkerHandle(worker, worker.open.remote(), node, failed_starts))

    def _replace(self, handle: _WorkerHandle, error: Exception) -> None:
        """Replace a worker that is dead or cannot be reached; it is killed, so that no item is done twice."""
        if handle not in self._workers:  # another of its items has replaced it
            return
        failed_starts = 0 if handle.opened else handle.failed_starts + 1
        if failed_starts >= STARTS or getattr(error, "actor_init_failed", False):
            raise OdarError(f"no worker can be started on the Ray cluster: {one_line(error, 200)}")
        self._workers.remove(handle)
        self._ray.kill(handle.worker)
        self._start_worker(failed_starts, avoid="" if handle.opened else handle.node)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        if exception == (None, None, None):
            closing = (handle.worker.close.remote() for handle in self._workers if handle.opened)
            await asyncio.gather(*closing, return_exceptions=True)
        await self.limiter.close()
        self._ray.shutdown()


@dataclass(eq=False, slots=True)
class _WorkerHandle:
    """A worker as seen by the driver."""

    worker: Any
    ready: Any
    """Ray's reference to the result of `open`."""
    node: str
    """The machine it is on."""
    failed_starts: int
    """How many of its predecessors were lost before they were ready."""
    items: int = 0
    opened: bool = False


def _connect(address: str | None) -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise SettingsError("--engine ray needs Ray: pip install 'odar[ray]', here and on the cluster") from None
    try:
        _check_reachable(address or "auto")
        _init(ray, address)
    except Exception as error:  # Ray raises nothing narrower for a node that did not come up in time
        raise SettingsError(
            f"no Ray cluster at {address or 'auto'} ({one_line(error, 200)}); start one with `ray start --head` "
            "and give its host:port, or --ray-address local"
        ) from None
    return ray


def _init(ray: Any, address: str | None) -> None:
    """Connect to a cluster; a local one is started again if a busy machine did not start it in time."""
    options: dict[str, Any] = {"namespace": NAMESPACE, "log_to_driver": False, "configure_logging": False}
    if address == LOCAL:
        options["include_dashboard"] = False
    for left in reversed(range(_LOCAL_STARTS if address == LOCAL else 1)):
        try:
            ray.init(address or "auto", **options)
        except Exception:
            ray.shutdown()
            if not left:
                raise
        else:
            return


def _check_reachable(address: str) -> None:
    """Fail within seconds if there is no server: Ray itself tries for minutes."""
    if "://" in address:
        raise ValueError("Ray Client is not supported")
    host, colon, port = address.rpartition(":")
    if colon:
        socket.create_connection((host, int(port)), _REACHABLE_S).close()
