"""The engine on many machines: workers on an existing Ray cluster, one limiter for all of them.

The driver (this process) alone writes the journal. A worker sends it what the item has paid for as it comes, and
the outcome last; if the worker dies in between, the item goes to another one together with what has arrived.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, Self

from odar.batch.executor import Item, OpenWork, Outcome, Work
from odar.batch.journal import Memo
from odar.batch.limits import LEASE_S, LocalLimiter, Needs, Rate
from odar.errors import OdarError, SettingsError

LOCAL = "local"
NAMESPACE = "odar"
ATTEMPTS = 4
"""An item whose workers died this often is at fault itself, or the cluster is."""
_ITEMS_AT_ONCE = 1000
"""No limit of Ray's own: how many items run at once is decided by the driver."""
_REACHABLE_S = 5.0


class RayExecutor:
    """Does the work on a Ray cluster.

    Args:
        open_work: sent to every worker; odar must be installed there, in this version.
        rates: limits by provider, held over all workers and over all batches on the cluster.
        lease_s: no item takes longer.
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
        self._ray = _connect(address)
        # They wait for replies most of the time: no CPU is claimed, or a busy cluster would never start them.
        options = {"num_cpus": 0, "scheduling_strategy": "SPREAD", "max_concurrency": _ITEMS_AT_ONCE}
        actor = self._ray.remote(**options)(_Worker)
        self._start = partial(actor.remote, open_work)
        self._busy = {self._start(): 0 for _ in range(workers)}
        """How many items each worker has."""
        self.limiter = RayLimiter(self._ray, rates or {}, lease_s)

    async def do(self, item: Item, memo: Memo) -> Outcome:
        """Do one item on one worker; where that dies, on the next."""
        for _ in range(ATTEMPTS):
            worker = min(self._busy, key=lambda each: self._busy[each])
            self._busy[worker] += 1
            try:
                return await self._on(worker, item, memo)
            except self._ray.exceptions.RayActorError:
                self._replace(worker)
            except self._ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, OdarError):  # such as a key that the worker's machine does not have
                    raise error.cause from None
                raise
            finally:
                if worker in self._busy:
                    self._busy[worker] -= 1
        raise OdarError(f"item {item.key!r}: {ATTEMPTS} workers died over it; see the logs of the Ray cluster")

    async def _on(self, worker: Any, item: Item, memo: Memo) -> Outcome:
        async for reference in worker.do.options(num_returns="streaming").remote(item, memo.known):
            name, value = await reference
            if name is None:
                outcome: Outcome = value
                return outcome
            memo.keep(name, value)
        raise OdarError(f"item {item.key!r}: its worker ended without an outcome")

    def _replace(self, worker: Any) -> None:
        """A new worker for one that is dead, or out of reach: that one is ended, or an item might be done twice."""
        if self._busy.pop(worker, None) is not None:
            self._ray.kill(worker)
            self._busy[self._start()] = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        if exception == (None, None, None):
            await asyncio.gather(*(worker.close.remote() for worker in self._busy), return_exceptions=True)
        await self.limiter.close()
        self._ray.shutdown()


class _Worker:
    """One process on the cluster."""

    def __init__(self, open_work: OpenWork) -> None:
        self._open_work = open_work
        self._stack = contextlib.AsyncExitStack()
        self._work: asyncio.Task[Work] | None = None

    async def do(self, item: Item, known: dict[str, Any]) -> AsyncIterator[tuple[str | None, Any]]:
        """What the item pays for, by name, as it comes; its outcome last, without a name."""
        if self._work is None:
            self._work = asyncio.create_task(self._stack.enter_async_context(self._open_work()))
        work = await self._work
        kept: asyncio.Queue[tuple[str | None, Any]] = asyncio.Queue()
        memo = Memo(known, lambda name, value: kept.put_nowait((name, value)))

        async def finish() -> None:
            try:
                kept.put_nowait((None, await work(item, memo)))
            except BaseException as error:
                kept.put_nowait((None, error))
                raise

        task = asyncio.create_task(finish())
        try:
            name: str | None = ""
            while name is not None:
                name, value = await kept.get()
                if isinstance(value, BaseException):
                    raise value
                yield name, value
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """Let go of connections, write traces that are queued."""
        await self._stack.aclose()


class RayLimiter:
    """The limiter of a cluster: an actor that all drivers share, and that goes when the last of them has left."""

    def __init__(self, ray: Any, rates: Mapping[str, Rate], lease_s: float) -> None:
        self._ray, self._rates, self._lease_s = ray, dict(rates), lease_s
        self._actor: Any = None

    async def take(self, needs: Needs) -> int:
        """Wait until the needs fit, hold them, and return a ticket."""
        if not needs.keys() & self._rates.keys():
            return 0
        if self._actor is None:
            actor = self._ray.remote(num_cpus=0, max_restarts=-1, max_concurrency=_ITEMS_AT_ONCE)(_SharedLimiter)
            shared = {"name": "limits", "namespace": NAMESPACE, "get_if_exists": True, "lifetime": "detached"}
            self._actor = actor.options(**shared).remote()
            await self._actor.enter.remote(self._rates, self._lease_s)
        ticket: int = await self._actor.take.remote(dict(needs))
        return ticket

    async def settle(self, ticket: int, used: Needs) -> None:
        """Hand the ticket back with what was used."""
        if ticket:
            await self._actor.settle.remote(ticket, dict(used))

    async def close(self) -> None:
        """Leave; the last one puts out the light."""
        if self._actor is not None and await self._actor.leave.remote() == 0:
            self._ray.kill(self._actor)


class _SharedLimiter(LocalLimiter):
    """The actor: a local limiter that counts its users."""

    def __init__(self) -> None:
        super().__init__({})
        self._users = 0

    async def enter(self, rates: Mapping[str, Rate], lease_s: float) -> None:
        """Another driver, with limits of its own: the last word on a provider counts."""
        self._users += 1
        self.rates |= rates
        self._lease_s = max(self._lease_s, lease_s)

    async def leave(self) -> int:
        """How many are left."""
        self._users -= 1
        return self._users


def _connect(address: str | None) -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise SettingsError("--engine ray needs Ray: pip install 'odar[ray]', here and on the cluster") from None
    options: dict[str, Any] = {"namespace": NAMESPACE, "log_to_driver": False, "configure_logging": False}
    if address == LOCAL:
        options["include_dashboard"] = False
    try:
        _check_reachable(address or "auto")
        ray.init(address or "auto", **options)
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        why = " ".join(str(error).split())[:200]
        raise SettingsError(
            f"no Ray cluster at {address or 'auto'} ({why}); start one with `ray start --head` and give its "
            "host:port, or --ray-address local"
        ) from None
    return ray


def _check_reachable(address: str) -> None:
    """Fail within seconds where nobody listens: Ray itself tries for minutes."""
    if "://" in address:
        raise ValueError("Ray Client is not supported")
    host, colon, port = address.rpartition(":")
    if colon:
        socket.create_connection((host, int(port)), _REACHABLE_S).close()
