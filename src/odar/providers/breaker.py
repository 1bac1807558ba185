"""A circuit breaker around a provider: after repeated failures no request is sent for a while, then one as a probe.

    closed ── failures in a row ──▶ open ── after the cooldown ──▶ half open ── the probe succeeds ──▶ closed
                                      ▲                                │
                                      └── the probe fails: twice the cooldown, up to eight times

The state machine does no I/O; its clock is an argument.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Literal, NamedTuple

from odar.background import CURRENT_KEY
from odar.errors import ProviderError, ProviderProtocolError, ProviderTimeout, ProviderUnreachable
from odar.providers.base import Reply, Request

FAILURES = 5
"""Failures in a row that open a breaker."""
COOLDOWN_S = 10.0
"""Seconds that it stays open at first."""
_MAX_GROWTH = 8
"""Limit of the cooldown as a multiple of its first length."""
BACKGROUND: ContextVar[bool] = ContextVar("odar_background", default=False)
"""Whether no client waits for the call: it respects breakers, but never changes them."""


class BreakerReport(NamedTuple):
    """The state of a circuit breaker; later states, in the order of `BREAKER_STATES`, are worse."""

    state: str
    failures: int
    """Number of failures in a row."""
    retry_s: float | None
    """Seconds until a probe is allowed; None if it is closed."""


BREAKER_STATES = ("closed", "half_open", "open")


class Breaker:
    """The state of one provider: `failures` in a row (5) open it, at first for `cooldown_s` (10).

    A provider that has answered others within that time is not down: then the failures of one API key alone, whose
    requests may be what it cannot answer, do not open it.

    >>> now = 0.0
    >>> breaker = Breaker(failures=1, cooldown_s=10, clock=lambda: now)
    >>> breaker.failed(); breaker.admit()
    10.0
    >>> now = 10.0
    >>> breaker.admit(), breaker.state, breaker.admit()  # one probe, the others wait
    (None, 'half_open', 10.0)
    >>> breaker.succeeded(); breaker.state
    'closed'
    """

    def __init__(
        self,
        provider: str = "",
        *,
        failures: int | None = None,
        cooldown_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state: Literal["closed", "open", "half_open"] = "closed"
        self._provider = provider
        self._limit = failures or FAILURES
        self._first = self._cooldown = cooldown_s or COOLDOWN_S
        self._clock = clock
        self.failures = 0
        """Number of failures in a row."""
        self._until = 0.0
        self._failed_for: set[str] = set()
        """API keys of the failures in a row."""
        self._answered_at: dict[str, float] = {}
        """When it last answered each API key."""

    def admit(self) -> float | None:
        """None if a request may be sent, otherwise the seconds until the next attempt."""
        if self.state == "closed":
            return None
        now = self._clock()
        if now < self._until:
            return self._until - now
        # The first request after the cooldown is the probe. If its result is not recorded, another follows later.
        self.state = "half_open"
        self._until = now + self._cooldown
        return None

    def waiting(self) -> float | None:
        """The seconds until a probe is allowed, or None if the breaker is closed; changes no state."""
        return None if self.state == "closed" else max(0.0, self._until - self._clock())

    def report(self) -> BreakerReport:
        return BreakerReport(self.state, self.failures, self.waiting())

    async def call(self, request: Request, send: Callable[[], Awaitable[Reply]]) -> Reply:
        """Send a request, and record how it ends; raise ProviderUnreachable if the breaker is open."""
        # refuse it while the breaker is open
        background = BACKGROUND.get()
        wait = self.waiting() if background else self.admit()
        if wait is not None:
            raise ProviderUnreachable(
                f"{self._provider}: failed repeatedly, so no request is sent; retry after {wait:.0f} s",
                provider=self._provider,
                status=503,
                code="circuit_open",
                retry_after=wait,
                retryable=True,
                may_be_billed=False,
                reached=False,
            )
        # send it, and record the outcome unless it is background work
        if background:
            return await send()
        key = CURRENT_KEY.get()
        try:
            reply = await send()
        except ProviderError as error:
            if not is_down(error):
                self.succeeded(key)
            elif _is_not_its_fault(error, request):
                self.abandoned()
            else:
                self.failed(key)
            raise
        except BaseException:
            self.abandoned()
            raise
        self.succeeded(key)
        return reply

    def succeeded(self, key: str = "") -> None:
        """Record that the provider answered a request of this key, even if it refused it."""
        self.state = "closed"
        self.failures = 0
        self._cooldown = self._first
        self._failed_for.clear()
        self._answered_at[key] = self._clock()

    def failed(self, key: str = "") -> None:
        """Record a failure of the provider at a request of this key."""
        self.failures += 1
        self._failed_for.add(key)
        if self.state == "half_open":
            self._cooldown = min(2 * self._cooldown, _MAX_GROWTH * self._first)
        elif self.state == "open" or self.failures < self._limit or self._answers_others():
            return  # a late failure from before it opened, or the requests of one key
        self._open(self._cooldown)

    def _answers_others(self) -> bool:
        """Whether all failures in a row are of one key, and another got an answer lately."""
        since = self._clock() - self._first
        others = (at for key, at in self._answered_at.items() if key not in self._failed_for)
        return len(self._failed_for) == 1 and max(others, default=-math.inf) > since

    def abandoned(self) -> None:
        """Record that the caller cancelled the request; if it was the probe, the next request becomes the probe."""
        if self.state == "half_open":
            self._open(0.0)

    def _open(self, seconds: float) -> None:
        self.state = "open"
        self._until = self._clock() + seconds


def is_down(error: ProviderError) -> bool:
    """Whether the error is a failure of the provider, and not of a single request.

    >>> is_down(ProviderError("", status=429)), is_down(ProviderError("", status=503)), is_down(ProviderTimeout(""))
    (False, True, True)
    """
    if error.status is not None:
        return error.status >= 500
    return isinstance(error, ProviderTimeout | ProviderUnreachable | ProviderProtocolError)


def _is_not_its_fault(error: ProviderError, request: Request) -> bool:
    """Whether a limit of this process or a choice of the caller, timeout or model, caused the failure."""
    if error.local:
        return True
    if isinstance(error, ProviderTimeout) and request.short_timeout:
        return True
    return request.unlisted_model and error.reached
