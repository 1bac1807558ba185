"""A token bucket: so many requests a minute, with room for a burst."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Bucket:
    """Fills at `rate_per_min` and holds a minute's worth, at least one.

    In the long run nobody gets more than the rate; after a quiet minute, a minute's worth may come at once.

    >>> bucket = Bucket(60, now=0.0)
    >>> [bucket.take(0.0) for _ in range(61)][-2:]
    [0.0, 1.0]
    >>> bucket.take(1.0)
    0.0
    """

    rate_per_min: float
    now: float
    _tokens: float = field(init=False)

    def __post_init__(self) -> None:
        self._tokens = self._room

    @property
    def _room(self) -> float:
        return max(1.0, self.rate_per_min)

    def take(self, now: float) -> float:
        """Take a token, and return 0; or take none, and return the seconds until there is one."""
        elapsed = max(0.0, now - self.now)  # a clock that was set back gives nothing and takes nothing
        self._tokens = min(self._room, self._tokens + elapsed * self.rate_per_min / 60)
        self.now = now
        if self._tokens >= 1 - 1e-9:  # a hair of slack for floating point
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) * 60 / self.rate_per_min
