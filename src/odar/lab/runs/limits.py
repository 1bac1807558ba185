"""Rate limits by provider: a number of requests and tokens that is not exceeded in any 60 seconds.

The maximum of an item is reserved before it starts. When it ends, its actual use takes the place of the reservation
and counts for another minute. (Retries after a failure are known only at the end, and count then.)
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from odar.errors import SettingsError
from odar.settings import Settings

WINDOW_S = 60.0
REQUESTS = "requests"
TOKENS = "tokens"
Amounts = Mapping[tuple[str, str], float]
"""Numbers by provider and kind, which is REQUESTS or TOKENS: what an item takes, or the limits of a minute."""


def rates_of(settings: Settings) -> Amounts:
    """The limits that are set."""
    limits = {
        **{(name, REQUESTS): provider.requests_per_min for name, provider in settings.providers.items()},
        **{(name, TOKENS): provider.tokens_per_min for name, provider in settings.providers.items()},
    }
    return {resource: limit for resource, limit in limits.items() if limit}


def check_needs(needs: Amounts, rates: Amounts) -> None:
    """Raise SettingsError if a single item may exceed a limit of requests.

    Tokens are not checked: the needs are an upper bound.
    """
    for (provider, kind), need in needs.items():
        limit = rates.get((provider, kind), math.inf)
        if kind == REQUESTS and need > limit:
            raise SettingsError(
                f"providers.{provider}.requests_per_min = {limit} cannot be kept: one item may take "
                f"{need} requests; raise it, lower routing.samples, or take a simpler path"
            )


class RateLimiter:
    """Delays items until they fit the rates; what has no rate is not counted."""

    def __init__(self, rates: Amounts, clock: Callable[[], float] = time.monotonic) -> None:
        self._rates = rates
        self._clock = clock
        self._counted: dict[int, tuple[float, Amounts]] = {}
        """Time at which the amounts of an item stop counting, infinity while they are reserved; by ticket."""
        self._tickets = 0
        self._settled = asyncio.Event()

    async def acquire(self, needs: Amounts) -> int:
        """Wait until the needs fit and reserve them; returns a ticket."""
        while (wait := self.wait_s(needs)) > 0:
            self._settled.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._settled.wait(), None if math.isinf(wait) else wait)
        return self.reserve(needs)

    def wait_s(self, needs: Amounts) -> float:
        """Seconds until the needs fit; infinity if a running item must end first."""
        now = self._clock()
        self._counted = {ticket: each for ticket, each in self._counted.items() if each[0] > now}
        counted = sorted(self._counted.values(), key=lambda each: each[0])
        latest = now
        for resource in needs.keys() & self._rates.keys():
            total = sum(amounts.get(resource, 0) for _, amounts in counted)
            for until, amounts in counted:
                # a need that exceeds the limit by itself waits until it is alone
                if total == 0 or total + needs[resource] <= self._rates[resource]:
                    break
                total -= amounts.get(resource, 0)
                latest = max(latest, until)
        return latest - now

    def reserve(self, needs: Amounts) -> int:
        self._tickets += 1
        self._count(self._tickets, math.inf, needs)
        return self._tickets

    def settle(self, ticket: int, used: Amounts) -> None:
        self._count(ticket, self._clock() + WINDOW_S, used)
        self._settled.set()

    def _count(self, ticket: int, until: float, amounts: Amounts) -> None:
        self._counted[ticket] = (until, {name: amount for name, amount in amounts.items() if name in self._rates})
