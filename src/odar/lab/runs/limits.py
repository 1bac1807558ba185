"""What an item of work takes from providers, and the rate limits that this must fit.

A rate limit is a number of requests or tokens of a provider that is not exceeded in any 60 seconds.

The maximum of an item is reserved before it starts. When it ends, its actual use takes the place of the reservation
and counts for another minute. (Retries after a failure are known only at the end, and count then.)
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from odar.agents.ledger import token_upper_bound
from odar.engine import Odar
from odar.errors import BudgetExceeded, SettingsError
from odar.lab.recording.schema import sum_costs
from odar.providers.http import ATTEMPTS
from odar.settings import Settings
from odar.types import Ask, Call, Query

WINDOW_S = 60.0
REQUESTS = "requests"
TOKENS = "tokens"
Amounts = Mapping[tuple[str, str], float]
"""Numbers by provider and kind, which is REQUESTS or TOKENS: what an item takes, or the limits of a minute."""


def worst_case(odar: Odar, query: Query, asks: Iterable[Ask]) -> tuple[Amounts, float | None]:
    """The maximum needs and cost of these requests; the cost is None if a price is unknown.

    If an agent may choose among models, the most expensive one counts for the cost, and all of them for the needs.
    """
    needs: Counter[tuple[str, str]] = Counter()
    costs: list[float | None] = []
    team = odar.agents.team(query, odar.agents.ledger())
    for ask in asks:
        read = token_upper_bound(team.billed_prompt(ask))
        choices: list[float | None] = []
        for card in odar.agents.cards[ask.agent]:
            max_tokens = team.request_template(ask.agent, card).sampling.max_tokens or 0
            needs[card.provider, REQUESTS] += ask.samples
            needs[card.provider, TOKENS] += ask.samples * (read + team.draft_tokens(ask, card) + max_tokens)
            try:
                choices.append(ask.samples * team.worst_cost(ask, card))
            except BudgetExceeded:  # its price is unknown
                choices.append(None)
        costs.append(None if None in choices else max(cost or 0.0 for cost in choices))
    return needs, sum_costs(costs)


def used_amounts(calls: Iterable[Call], needs: Amounts) -> Amounts:
    """Requests and tokens of some calls.

    A failed call counts with all allowed attempts, a provider with unknown tokens with at least its maximum.
    """
    used: Counter[tuple[str, str]] = Counter()
    unknown = set()
    for call in calls:
        used[call.provider, REQUESTS] += ATTEMPTS if call.failed else 1 + call.retries
        if call.usage.input is None or call.usage.output is None:
            unknown.add((call.provider, TOKENS))
        else:
            used[call.provider, TOKENS] += call.usage.input + call.usage.output
    return {**used, **{resource: max(used[resource], needs.get(resource, 0)) for resource in unknown}}


def rates_of(settings: Settings) -> Amounts:
    """The rate limits of the providers in the settings."""
    limits = {}
    for name, provider in settings.providers.items():
        limits[name, REQUESTS] = provider.requests_per_min
        limits[name, TOKENS] = provider.tokens_per_min
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
        """Replace the reservation of a ticket by what was used, which counts for another minute."""
        self._count(ticket, self._clock() + WINDOW_S, used)
        self._settled.set()

    def _count(self, ticket: int, until: float, amounts: Amounts) -> None:
        self._counted[ticket] = (until, {name: amount for name, amount in amounts.items() if name in self._rates})
