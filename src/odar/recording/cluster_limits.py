"""Rate limits over a whole Ray cluster: one limiter that all batches on it share.

It is an actor on one of the cluster's machines. Should it be lost with that machine, the next one begins as if all
that is allowed in a minute had just been used, with what its users have under way held back: slower for a minute,
but never above the limit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from odar.errors import OdarError
from odar.recording.limits import Amount, LocalLimiter, Needs, Rate

NAMESPACE = "odar"
NAME = "limits"
ITEMS_AT_ONCE = 1000
"""No limit of Ray's own: how many items run at once is decided by the driver."""
_ATTEMPTS = 20
"""A limiter that another batch is just about to close, or that is lost, is replaced this often."""
_PAUSE_S = 0.25


@dataclass(slots=True)
class _Held:
    """Something under way."""

    needs: Needs
    ticket: int
    """The shared limiter's own, of the one that is there now."""


class RayLimiter:
    """One batch's way to the limiter of its cluster, which goes when the last batch has left."""

    def __init__(self, ray: Any, rates: Mapping[str, Rate], lease_s: float) -> None:
        self._ray, self._rates, self._lease_s = ray, dict(rates), lease_s
        self._actor: Any = None
        self._entering = asyncio.Lock()
        self._entered_before = False
        self._held: dict[int, _Held] = {}
        self._tickets = 0

    async def take(self, needs: Needs) -> int:
        """Wait until the needs fit, hold them, and return a ticket."""
        if not needs.keys() & self._rates.keys():
            return 0
        for _ in range(_ATTEMPTS):
            actor = await self._entered()
            try:
                theirs: int = await actor.take.remote(dict(needs))
            except self._ray.exceptions.RayActorError:
                await self._lose(actor)
                continue
            if actor is self._actor:  # else it was lost in between, and this with it
                self._tickets += 1
                self._held[self._tickets] = _Held(needs, theirs)
                return self._tickets
        raise OdarError("the rate limiter on the Ray cluster is lost again and again; see the cluster's logs")

    async def settle(self, ticket: int, used: Needs) -> None:
        """Hand the ticket back with what was used."""
        if not ticket:
            return
        for _ in range(_ATTEMPTS):
            actor = await self._entered()
            try:
                await actor.settle.remote(self._held[ticket].ticket, dict(used))
            except self._ray.exceptions.RayActorError:
                await self._lose(actor)
            else:
                break
        del self._held[ticket]

    async def close(self) -> None:
        """Leave; the last one puts out the light."""
        if self._actor is not None:
            try:
                if await self._actor.leave.remote() == 0:
                    self._ray.kill(self._actor)
            except self._ray.exceptions.RayActorError:
                pass  # it is gone already

    async def _entered(self) -> Any:
        """The limiter that is there, or else a new one; it knows our limits and what we have under way."""
        async with self._entering:
            for _ in range(_ATTEMPTS):
                if self._actor is None and not await self._enter():
                    await asyncio.sleep(_PAUSE_S)
                if self._actor is not None:
                    return self._actor
        raise OdarError("no rate limiter can be started on the Ray cluster; see the cluster's logs")

    async def _enter(self) -> bool:
        """Find or start the shared limiter; False where it is lost at once, or its last user has just left."""
        errors = self._ray.exceptions
        actor = self._ray.remote(num_cpus=0, max_concurrency=ITEMS_AT_ONCE)(SharedLimiter)
        held = list(self._held.values())
        try:
            shared = {"name": NAME, "namespace": NAMESPACE, "get_if_exists": True, "lifetime": "detached"}
            found = actor.options(**shared).remote()
            needs = [dict(each.needs) for each in held]
            tickets = await found.enter.remote(self._rates, self._lease_s, needs, self._entered_before)
        except (errors.RayActorError, errors.ActorAlreadyExistsError, errors.ActorHandleNotFoundError):
            return False
        if tickets is None:
            self._ray.kill(found)  # whoever left last may not have come to that
            return False
        for each, ticket in zip(held, tickets, strict=True):
            each.ticket = ticket
        self._actor, self._entered_before = found, True
        return True

    async def _lose(self, actor: Any) -> None:
        if self._actor is actor:
            self._actor = None
        await asyncio.sleep(_PAUSE_S)


class SharedLimiter(LocalLimiter):
    """The actor: a local limiter that counts its users."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__({}, clock=clock)
        self._users = 0
        self._closed = False

    async def enter(
        self, rates: Mapping[str, Rate], lease_s: float, held: Sequence[Needs] = (), lost: bool = False
    ) -> list[int] | None:
        """Another driver, with limits of its own: the last word on a provider counts.

        Args:
            rates: its limits.
            lease_s: no item of its takes longer.
            held: what it has under way.
            lost: whether it comes from a limiter that was lost, with all that was known of the last minute.

        Returns:
            A ticket for each of `held`; None where the last driver has left, and this limiter is about to end.
        """
        if self._closed:
            return None
        self._users += 1
        self.rates |= rates
        self._lease_s = max(self._lease_s, lease_s)
        if lost:
            await self.settle(
                0, {name: Amount(rate.requests or 0, rate.tokens or 0) for name, rate in rates.items()}
            )
        return [self.hold(needs) for needs in held]

    async def leave(self) -> int:
        """How many are left."""
        self._users -= 1
        self._closed = self._users == 0
        return self._users
