"""The date that deletions go by. A clock that was set wrong must not make every trace look old.

The wall clock's word alone is not enough: somebody, NTP or a dead battery can set it to any year. Time has
certainly passed up to the newest trace that was there when the store was opened, and since then by as much as the
steady clock says, which nobody can set. The wall clock counts for more once it has gone on for hours without a
jump.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

BORNE_OUT_S = 6 * 3600.0
"""So long a clock must go on without a jump to be believed; an operator has this long to notice."""
JUMP_S = 60.0
"""Less than this is a correction, not a jump."""
_DAY_S = 86_400.0
_LOG = logging.getLogger(__name__)
_TERM = f"before it has gone on for {BORNE_OUT_S / 3600:g} hours"


def steady_clock() -> float:
    """Seconds that nobody can set, the sleep of the machine included where the system counts it."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class Calendar:
    """What day it is at least, as far as anything but the wall clock bears it out.

    Args:
        newest: when the newest trace in the store began, seconds since 1970; None where there is none.
        wall: the clock that can be set.
        steady: the clock that cannot.
    """

    def __init__(
        self,
        newest: float | None,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = steady_clock,
    ) -> None:
        self._wall, self._steady = wall, steady
        self._known_at = self._steady_since = steady()
        self._offset = wall() - self._known_at
        self._known = wall() if newest is None else newest

    def now(self) -> datetime:
        """The time to delete by: never later than the wall clock, and earlier while that is not to be believed."""
        wall, steady = self._wall(), self._steady()
        jump, self._offset = wall - steady - self._offset, wall - steady
        if abs(jump) > JUMP_S:
            self._steady_since = steady
            if jump > _DAY_S:
                days = jump / _DAY_S
                _LOG.warning("the clock jumped %.0f days ahead; no trace is deleted on its word %s", days, _TERM)
        if steady - self._steady_since >= BORNE_OUT_S:
            self._known, self._known_at = wall, steady
        return datetime.fromtimestamp(min(wall, self._known + steady - self._known_at), UTC)
