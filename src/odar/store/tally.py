"""What each key has spent, in memory: what the database says, plus what is on its way there."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import NamedTuple

from odar.store.record import Charge


class Spent(NamedTuple):
    """Money, as far as it is known, and the number of requests of which it is not."""

    usd: float = 0.0
    unknown: int = 0

    def plus(self, usd: float, unknown: int) -> Spent:
        """With this added."""
        return Spent(self.usd + usd, self.unknown + unknown)


Totals = dict[tuple[str, str], Spent]
"""By key and period: a day, "2026-11-15", or a month, "2026-11"."""


_NOTHING = 1e-12
"""Dollars that are only the rounding of a sum."""


class Tally:
    """Exact within this process, without a look at the database per request.

    The store's writer is the only one to call `settle` and `rebase`, so what it reads from the database holds
    everything it has settled and nothing of what it has not.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stored: Totals = {}
        self._pending: Totals = {}

    def of(self, key_id: str, period: str) -> Spent:
        """What the key spent in this day or month."""
        with self._lock:
            stored = self._stored.get((key_id, period), Spent())
            return stored.plus(*self._pending.get((key_id, period), Spent()))

    def charge(self, charge: Charge) -> None:
        """A request has been made; its record is on its way."""
        with self._lock:
            _add(self._pending, charge)

    def settle(self, charges: Iterable[Charge]) -> None:
        """These have reached the database."""
        with self._lock:
            for charge in charges:
                _add(self._pending, charge, -1)
                _add(self._stored, charge)

    def rebase(self, stored: Totals, month: str) -> None:
        """This is what the database says now, by all processes."""
        with self._lock:
            self._stored = dict(stored)
            # What came back to nothing is dropped, and what belongs to a month that is over.
            self._pending = {
                (key, period): spent
                for (key, period), spent in self._pending.items()
                if period >= month and (spent.unknown or abs(spent.usd) > _NOTHING)
            }


def _add(totals: Totals, charge: Charge, sign: int = 1) -> None:
    usd, unknown = (0.0, sign) if charge.cost_usd is None else (sign * charge.cost_usd, 0)
    for period in (charge.day, charge.day[:7]):
        key = (charge.key_id, period)
        totals[key] = totals.get(key, Spent()).plus(usd, unknown)
