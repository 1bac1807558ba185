"""The gate: how many requests are in flight, and whether one more is accepted."""

from __future__ import annotations

from odar.gateway.errors import ApiError

RETRY_S = 1.0
"""What a client that is shed is told to wait: load passes quickly or not at all."""


class Gate:
    """Counts requests in flight and refuses what is too much, before a byte of the body is read.

    >>> gate = Gate(limit=1)
    >>> gate.enter()
    >>> gate.in_flight
    1
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_flight = 0
        self.draining = False

    def enter(self) -> None:
        """Come in, or be told why not."""
        if self.draining:
            raise ApiError(503, "the gateway is shutting down", "draining", retry_after=RETRY_S)
        if self.in_flight >= self.limit:
            message = f"{self.limit} requests are in flight, which is the most gateway.max_in_flight allows"
            raise ApiError(429, message, "overloaded", retry_after=RETRY_S)
        self.in_flight += 1

    def leave(self) -> None:
        """Make room for another."""
        self.in_flight -= 1
