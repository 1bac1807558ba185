"""Rate limits by provider: never more than so many requests and tokens in any 60 seconds.

What an item may need at the most is held back before it starts and replaced by what it used when it ends. It counts
from the start until a minute after the end: whenever its calls happened in between, the limit holds. (A provider's
own retries after a failure are only known at the end, and count then.)
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from odar.errors import SettingsError
from odar.settings import Settings

WINDOW_S = 60.0
LEASE_S = 600.0
"""No item takes longer, unless it says so."""


class Amount(NamedTuple):
    """Requests and tokens, of one provider."""

    requests: int = 0
    tokens: int = 0

    def plus(self, other: Amount, sign: int = 1) -> Amount:
        """The sum, or with a sign of −1 the difference.

        >>> Amount(1, 10).plus(Amount(2, 5))
        Amount(requests=3, tokens=15)
        """
        return Amount(self.requests + sign * other.requests, self.tokens + sign * other.tokens)


NOTHING = Amount()
Needs = Mapping[str, Amount]
"""Amounts by provider."""


class Rate(NamedTuple):
    """What a provider takes in a minute; None is no limit."""

    requests: int | None = None
    tokens: int | None = None


def rates_of(settings: Settings) -> dict[str, Rate]:
    """The limits in the settings, of those providers that have any."""
    found = {name: Rate(p.requests_per_min, p.tokens_per_min) for name, p in settings.providers.items()}
    return {name: rate for name, rate in found.items() if rate != Rate()}


def check_needs(needs: Needs, rates: Mapping[str, Rate]) -> None:
    """Refuse a limit that one item alone may pass; tokens are only bounded from above, and not refused for that."""
    for provider, need in needs.items():
        limit = rates.get(provider, Rate()).requests
        if limit is not None and need.requests > limit:
            raise SettingsError(
                f"providers.{provider}.requests_per_min = {limit} cannot be kept: one item may take "
                f"{need.requests} requests; raise it, lower routing.samples, or take a simpler path"
            )


@dataclass(slots=True)
class Window:
    """What one provider was asked, or may yet be asked, within the last minute. Knows no clock of its own.

    >>> window, rate = Window(), Rate(requests=2)
    >>> window.hold(1, Amount(2), until=100.0); window.wait_s(Amount(1), rate, now=0.0)
    100.0
    >>> window.settle(1, Amount(1), now=5.0); window.wait_s(Amount(1), rate, now=5.0)
    0.0
    """

    _held: dict[int, tuple[float, Amount]] = field(default_factory=dict)
    """What is under way, and when it is given up: whoever held it may have been killed."""
    _past: deque[tuple[float, Amount]] = field(default_factory=deque)
    """What was used, and when it stops to count; the oldest first."""
    _sum: Amount = NOTHING

    def wait_s(self, need: Amount, rate: Rate, now: float) -> float:
        """0 where the need fits now; otherwise the seconds after which to ask again, at the latest."""
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
        """Count the need from now on."""
        self._held[ticket] = (until, need)
        self._sum = self._sum.plus(need)

    def settle(self, ticket: int, used: Amount, now: float) -> None:
        """Count what was used in place of what was held, for another minute."""
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
    """Whether the need can be added; one that may pass the limit by itself waits until it is alone."""
    return all(
        limit is None or counted + needed <= limit or counted == 0
        for counted, needed, limit in zip(total, need, rate, strict=True)
    )


class Limiter(Protocol):
    """Says when an item may start."""

    async def take(self, needs: Needs) -> int:
        """Wait until the needs fit, hold them, and return a ticket."""
        ...

    async def settle(self, ticket: int, used: Needs) -> None:
        """Hand the ticket back with what was used."""
        ...


class LocalLimiter:
    """The limiter of one process.

    Args:
        rates: limits by provider; a provider without any is not counted.
        lease_s: no item takes longer; a ticket that was not handed back by then belongs to a dead process.
        clock: seconds, from any start.
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
        """Wait until the needs fit, hold them, and return a ticket."""
        while (wait := self._wait_s(needs)) > 0:
            self._settled.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._settled.wait(), wait)
        return self.hold(needs)

    def hold(self, needs: Needs) -> int:
        """Hold the needs, whether they fit or not, and return a ticket."""
        self._tickets += 1
        until = self._clock() + self._lease_s + WINDOW_S
        for provider, need in self._counted(needs).items():
            self._windows[provider].hold(self._tickets, need, until)
        return self._tickets

    async def settle(self, ticket: int, used: Needs) -> None:
        """Hand the ticket back with what was used."""
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
