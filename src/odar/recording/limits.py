"""Rate limits by provider: a number of requests and tokens that is not exceeded in any 60 seconds.

The most that an item can take is reserved before it starts, and replaced by what it used when it ends. It counts
from the start until a minute after the end, so the limit holds whenever its calls were made. (Retries after a
failure are known at the end only, and count then.)

On a Ray cluster all batches share one limiter, an actor. If it is lost with its machine, the next one starts as if
a minute's allowance had just been used, with the reservations of its users: slower for a minute, never above the
limit.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from odar.errors import OdarError, SettingsError
from odar.settings import Settings

WINDOW_S = 60.0
LEASE_S = 600.0
"""The longest that an item takes, unless stated otherwise."""
NAMESPACE = "odar"
NAME = "limits"
ITEMS_AT_ONCE = 1000
"""Concurrency of an actor; the driver decides how many items run at once."""
_ATTEMPTS = 20
"""How often a limiter that is closing or lost is replaced."""
_PAUSE_S = 0.25


class Amount(NamedTuple):
    """Requests and tokens of one provider."""

    requests: int = 0
    tokens: int = 0

    def plus(self, other: Amount, sign: int = 1) -> Amount:
        """Return the sum, or the difference if `sign` is −1.

        >>> Amount(1, 10).plus(Amount(2, 5))
        Amount(requests=3, tokens=15)
        """
        return Amount(self.requests + sign * other.requests, self.tokens + sign * other.tokens)


NOTHING = Amount()
Needs = Mapping[str, Amount]
"""Amounts by provider."""


class Rate(NamedTuple):
    """What a provider accepts per minute; None is no limit."""

    requests: int | None = None
    tokens: int | None = None


def rates_of(settings: Settings) -> dict[str, Rate]:
    """Return the limits in the settings, by provider; providers without a limit are left out."""
    found = {name: Rate(p.requests_per_min, p.tokens_per_min) for name, p in settings.providers.items()}
    return {name: rate for name, rate in found.items() if rate != Rate()}


def check_needs(needs: Needs, rates: Mapping[str, Rate]) -> None:
    """Refuse a limit that a single item may exceed; its tokens are an upper bound, so they are not checked."""
    for provider, need in needs.items():
        limit = rates.get(provider, Rate()).requests
        if limit is not None and need.requests > limit:
            raise SettingsError(
                f"providers.{provider}.requests_per_min = {limit} cannot be kept: one item may take "
                f"{need.requests} requests; raise it, lower routing.samples, or take a simpler path"
            )


@dataclass(slots=True)
class Window:
    """What one provider was asked in the last minute, and what is reserved. The caller gives the time.

    >>> window, rate = Window(), Rate(requests=2)
    >>> window.hold(1, Amount(2), until=100.0); window.wait_s(Amount(1), rate, now=0.0)
    100.0
    >>> window.settle(1, Amount(1), now=5.0); window.wait_s(Amount(1), rate, now=5.0)
    0.0
    """

    _held: dict[int, tuple[float, Amount]] = field(default_factory=dict)
    """Reservations, and when they expire: their process may have been killed."""
    _past: deque[tuple[float, Amount]] = field(default_factory=deque)
    """What was used, and when it stops counting; the oldest first."""
    _sum: Amount = NOTHING

    def wait_s(self, need: Amount, rate: Rate, now: float) -> float:
        """Return 0 if the need fits now, else the seconds after which to ask again at the latest."""
        self._forget(now)
        total = self._sum
        if _fits(total, need, rate):
            return 0.0
        for until, amount in self._past:
            total = total.plus(amount, -1)
            if _fits(total, need, rate):
                return until - now
        return min(until for until, _ in self._held.values()) - now

    def hold(self, ticket: int, need: Amount, until: float) -> None:
        """Reserve the need."""
        self._held[ticket] = (until, need)
        self._sum = self._sum.plus(need)

    def settle(self, ticket: int, used: Amount, now: float) -> None:
        """Replace a reservation by what was used, which counts for another minute."""
        _, held = self._held.pop(ticket, (0.0, NOTHING))
        if used != NOTHING:
            self._past.append((now + WINDOW_S, used))
        self._sum = self._sum.plus(held, -1).plus(used)

    def _forget(self, now: float) -> None:
        while self._past and self._past[0][0] <= now:
            self._sum = self._sum.plus(self._past.popleft()[1], -1)
        for ticket in [ticket for ticket, (until, _) in self._held.items() if until <= now]:
            self._sum = self._sum.plus(self._held.pop(ticket)[1], -1)


def _fits(total: Amount, need: Amount, rate: Rate) -> bool:
    """Return whether the need can be added; one that exceeds the limit by itself waits until it is alone."""
    return all(
        limit is None or counted + needed <= limit or counted == 0
        for counted, needed, limit in zip(total, need, rate, strict=True)
    )


class LocalLimiter:
    """The limiter of one process.

    Args:
        rates: limits by provider; a provider without a limit is not counted.
        lease_s: no item takes longer; a ticket that was not settled by then belongs to a dead process.
        clock: returns seconds, such as `time.monotonic`.
    """

    def __init__(
        self, rates: Mapping[str, Rate], lease_s: float = LEASE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rates = dict(rates)
        self._lease_s = lease_s
        self._clock = clock
        self._windows: defaultdict[str, Window] = defaultdict(Window)
        self._tickets = 0
        self._settled = asyncio.Event()

    async def take(self, needs: Needs) -> int:
        """Wait until the needs fit, reserve them, and return a ticket."""
        while (wait := self._wait_s(needs)) > 0:
            self._settled.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._settled.wait(), wait)
        return self.hold(needs)

    def hold(self, needs: Needs) -> int:
        """Reserve the needs, whether they fit or not, and return a ticket."""
        self._tickets += 1
        until = self._clock() + self._lease_s + WINDOW_S
        for provider, need in self._counted(needs).items():
            self._windows[provider].hold(self._tickets, need, until)
        return self._tickets

    async def settle(self, ticket: int, used: Needs) -> None:
        """Return the ticket with what was used."""
        for provider in self._windows.keys() | self._counted(used).keys():
            self._windows[provider].settle(ticket, used.get(provider, NOTHING), self._clock())
        self._settled.set()

    def _wait_s(self, needs: Needs) -> float:
        now = self._clock()
        waits = (
            self._windows[provider].wait_s(need, self.rates[provider], now)
            for provider, need in self._counted(needs).items()
        )
        return max(waits, default=0.0)

    def _counted(self, needs: Needs) -> Needs:
        return {provider: need for provider, need in needs.items() if provider in self.rates}


@dataclass(slots=True)
class _Held:
    """A reservation with the shared limiter."""

    needs: Needs
    ticket: int
    """The ticket of the current shared limiter."""


class RayLimiter:
    """A batch's client of the shared limiter of its cluster, which ends when the last batch has left."""

    def __init__(self, ray: Any, rates: Mapping[str, Rate], lease_s: float) -> None:
        self._ray, self._rates, self._lease_s = ray, dict(rates), lease_s
        self._actor: Any = None
        self._entering = asyncio.Lock()
        self._entered_before = False
        self._held: dict[int, _Held] = {}
        self._tickets = 0

    async def take(self, needs: Needs) -> int:
        """Wait until the needs fit, reserve them, and return a ticket."""
        if not needs.keys() & self._rates.keys():
            return 0
        for _ in range(_ATTEMPTS):
            actor = await self._entered()
            try:
                theirs: int = await actor.take.remote(dict(needs))
            except self._ray.exceptions.RayActorError:
                await self._lose(actor)
                continue
            if actor is self._actor:  # otherwise the limiter was replaced, and the ticket is void
                self._tickets += 1
                self._held[self._tickets] = _Held(needs, theirs)
                return self._tickets
        raise OdarError("the rate limiter on the Ray cluster is lost again and again; see the cluster's logs")

    async def settle(self, ticket: int, used: Needs) -> None:
        """Return the ticket with what was used."""
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
        """Leave; the last batch ends the limiter."""
        if self._actor is not None:
            try:
                if await self._actor.leave.remote() == 0:
                    self._ray.kill(self._actor)
            except self._ray.exceptions.RayActorError:
                pass  # it is gone already

    async def _entered(self) -> Any:
        """Return the shared limiter, or a new one; it knows our limits and reservations."""
        async with self._entering:
            for _ in range(_ATTEMPTS):
                if self._actor is None and not await self._enter():
                    await asyncio.sleep(_PAUSE_S)
                if self._actor is not None:
                    return self._actor
        raise OdarError("no rate limiter can be started on the Ray cluster; see the cluster's logs")

    async def _enter(self) -> bool:
        """Find or start the shared limiter; return False if it was lost at once, or is closing."""
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
            self._ray.kill(found)  # the last user may not have ended it
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
    """The actor that all batches of a cluster share: a local limiter that counts its users."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__({}, clock=clock)
        self._users = 0
        self._closed = False

    async def enter(
        self, rates: Mapping[str, Rate], lease_s: float, held: Sequence[Needs] = (), lost: bool = False
    ) -> list[int] | None:
        """Add a driver with its limits; the latest limit of a provider counts.

        Args:
            rates: its limits.
            lease_s: the longest that one of its items takes.
            held: its reservations.
            lost: whether it used a limiter that was lost, and with it the counts of the last minute.

        Returns:
            A ticket for each of `held`; None if the last driver has left and this limiter is about to end.
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
        """Remove a driver; return how many are left."""
        self._users -= 1
        self._closed = self._users == 0
        return self._users


Limiter = LocalLimiter | RayLimiter
"""Says when an item may start."""
