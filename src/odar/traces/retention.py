"""Deletion of old traces in small batches, by a date that a wrong clock cannot move forward.

A wall clock can be set to any year by hand, by NTP or by an empty battery. The time is certainly not before the
newest trace at the opening of the store, plus the monotonic time since then. The wall clock is trusted once it has
run for hours without a jump.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, delete, func, select

from odar.traces.database import Database, documents, observations, responses, traces

BATCH = 500
TRUST_AFTER_S = 6 * 3600.0
"""Seconds that a clock must run without a jump before it is trusted, in which an operator can notice the jump."""
JUMP_S = 60.0
"""Minimum size of a jump; less is a correction."""
_DAY_S = 86_400.0
_LOG = logging.getLogger(__name__)


def newest_trace(connection: Connection) -> float | None:
    """The start time of the newest trace, in seconds since 1970; None if there is no trace."""
    newest = connection.scalar(select(func.max(traces.c.started_at)))
    return None if newest is None else datetime.fromisoformat(newest).timestamp()


def delete_old_traces(database: Database, days: int, now: datetime) -> bool:
    """Delete one batch of what is older than this many days, except the spending of keys; return whether more is.

    Days are those of UTC, and 0 keeps everything.
    """
    if days == 0:
        return False
    try:
        first = (now - timedelta(days=days)).date().isoformat()
    except OverflowError:  # before the first date
        return False
    with database.read() as connection:  # usually there is nothing to delete, and no lock is needed
        old = {
            age.table: list(connection.scalars(select(age.table.c.id).where(age < first).limit(BATCH)))
            for age in (traces.c.started_at, responses.c.day, observations.c.at)
        }
    if any(old.values()):
        with database.write() as connection:
            connection.execute(delete(documents).where(documents.c.trace_id.in_(old[traces])))
            for table, ids in old.items():
                connection.execute(delete(table).where(table.c.id.in_(ids)))
    return any(len(ids) == BATCH for ids in old.values())


def steady_clock() -> float:
    """The seconds of a clock that cannot be set; it includes sleep if the system supports that."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class TrustedClock:
    """A clock for deletions: the latest time that is certain without trusting the wall clock alone.

    Args:
        newest: start time of the newest trace in the store, in seconds since 1970, or None.
        wall: a clock that can be set.
        steady: a clock that cannot be set.
    """

    def __init__(
        self,
        newest: float | None,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = steady_clock,
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._known_at = self._steady_since = steady()
        self._offset = wall() - self._known_at
        self._known = wall() if newest is None else newest

    def now(self) -> datetime:
        """The time for deleting: that of the wall clock, or an earlier one while it is not trusted."""
        wall = self._wall()
        steady = self._steady()
        jump = wall - steady - self._offset
        self._offset = wall - steady
        if abs(jump) > JUMP_S:
            self._steady_since = steady
            if jump > _DAY_S:
                remedy = f"it is not used for deleting traces until it has run for {TRUST_AFTER_S / 3600:g} hours"
                _LOG.warning("the clock jumped %.0f days ahead; %s", jump / _DAY_S, remedy)
        if steady - self._steady_since >= TRUST_AFTER_S:
            self._known = wall
            self._known_at = steady
        return datetime.fromtimestamp(min(wall, self._known + steady - self._known_at), UTC)
