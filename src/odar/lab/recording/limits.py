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
from typing import NamedTuple

from odar.errors import SettingsError
from odar.settings import Settings

WINDOW_S = 60.0


class Amount(NamedTuple):
    """Requests and tokens of one provider."""

    requests: float = 0
    tokens: float = 0

    def plus(self, other: Amount, sign: int = 1) -> Amount:
        """The sum, or the difference if `sign` is −1.

        >>> Amount(1, 10).plus(Amount(2, 5))
        Amount(requests=3, tokens=15)
        """
        return Amount(self.requests + sign * other.requests, self.tokens + sign * other.tokens)


NOTHING = Amount()
Needs = Mapping[str, Amount]
"""Amounts by provider."""
Rates = Mapping[str, Amount]
"""Limits of a provider per minute; infinity without a limit."""


def rates_of(settings: Settings) -> dict[str, Amount]:
    """Providers without a limit are left out."""
    limits = {name: (p.requests_per_min, p.tokens_per_min) for name, p in settings.providers.items()}
    return {name: Amount(*(each or math.inf for each in both)) for name, both in limits.items() if any(both)}


def check_needs(needs: Needs, rates: Rates) -> None:
    """Raise SettingsError if a single item may exceed a limit of requests.

    Tokens are not checked: the needs are an upper bound.
    """
    for provider, need in needs.items():
        if provider in rates and need.requests > (limit := rates[provider].requests):
            raise SettingsError(
                f"providers.{provider}.requests_per_min = {limit} cannot be kept: one item may take "
                f"{need.requests} requests; raise it, lower routing.samples, or take a simpler path"
            )


class RateLimiter:
    """Delays items until they fit the limits. Providers without a rate are not counted."""

    def __init__(self, rates: Rates, clock: Callable[[], float] = time.monotonic) -> None:
        self._rates = dict(rates)
        self._clock = clock
        self._counted: dict[str, dict[int, tuple[float, Amount]]] = {name: {} for name in rates}
        """Time at which an amount stops counting, infinity while it is reserved; by provider and ticket."""
        self._tickets = 0
        self._settled = asyncio.Event()

    async def acquire(self, needs: Needs) -> int:
        """Wait until the needs fit and reserve them; returns a ticket."""
        while (wait := self.wait_s(needs)) > 0:
            self._settled.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._settled.wait(), None if math.isinf(wait) else wait)
        return self.reserve(needs)

    def wait_s(self, needs: Needs) -> float:
        """Seconds until the needs fit; infinity if a running item must end first."""
        now = self._clock()
        longest = 0.0
        for provider in needs.keys() & self._rates.keys():
            counting = {n: each for n, each in self._counted[provider].items() if each[0] > now}
            self._counted[provider] = counting
            total = Amount(*map(sum, zip(NOTHING, *(amount for _, amount in counting.values()), strict=True)))
            for until, amount in [(now, NOTHING), *sorted(counting.values())]:
                total = total.plus(amount, -1)
                # a need that exceeds the limit by itself waits until it is alone
                sums = zip(total, needs[provider], self._rates[provider], strict=True)
                if all(counted + need <= most or counted == 0 for counted, need, most in sums):
                    longest = max(longest, until - now)
                    break
        return longest

    def reserve(self, needs: Needs) -> int:
        self._tickets += 1
        for provider in needs.keys() & self._rates.keys():
            self._counted[provider][self._tickets] = (math.inf, needs[provider])
        return self._tickets

    def settle(self, ticket: int, used: Needs) -> None:
        for provider, counted in self._counted.items():
            counted[ticket] = (self._clock() + WINDOW_S, used.get(provider, NOTHING))
        self._settled.set()
