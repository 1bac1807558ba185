"""Catalogue entries of models: provider, capabilities and price (SPEC 4.2).

Cards come from `catalogue.toml`, overridden by the user's own `[models."name"]` tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from odar.types import Usage


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens.

    >>> Price(input=1.0, cached=0.1, output=4.0).cost(Usage(1_000_000, 500_000, 250_000, 0))
    1.55
    >>> Price(input=1.0, cached=0.1, output=4.0).cost(Usage()) is None
    True
    """

    input: float
    cached: float
    output: float
    written: float | None = None
    """Input that the provider writes to its cache; None is unknown."""
    written_1h: float | None = None
    """The same where it is kept for an hour."""
    up_to: int | None = None
    """Longest prompt, in tokens, that these prices hold for; None is any."""

    @property
    def free(self) -> bool:
        """Whether nothing costs anything."""
        return not (self.input or self.cached or self.output or self.written or self.written_1h)

    @property
    def max_input_price(self) -> float:
        """The highest known price of a prompt token."""
        return max(self.input, self.cached, self.written or 0.0, self.written_1h or 0.0)

    def cost(self, usage: Usage) -> float | None:
        """Return what this usage costs; None if a count or a price is unknown and would matter (SPEC 6.1)."""
        if self.free:
            return 0.0
        if usage.input is None or usage.output is None or usage.unpriced:
            return None
        if self.up_to is not None and usage.input > self.up_to:
            return None
        cached, written = usage.cached or 0, usage.written or 0
        fresh, writing = usage.input - cached - written, self._cost_of_writing(usage)
        if fresh < 0 or writing is None:  # contradictory counts are unknown counts
            return None
        total = fresh * self.input + cached * self.cached + writing + usage.output * self.output
        return total / 1_000_000

    def _cost_of_writing(self, usage: Usage) -> float | None:
        """Return the cost of writing to the cache, in millionths of a dollar."""
        if not usage.written:
            return 0.0
        if usage.written_1h is None:  # how much of it has the higher price is unknown
            return None
        brief = usage.written - usage.written_1h
        if brief < 0 or (brief and self.written is None) or (usage.written_1h and self.written_1h is None):
            return None
        return brief * (self.written or 0.0) + usage.written_1h * (self.written_1h or 0.0)


@dataclass(frozen=True, slots=True)
class ModelCard:
    """One model as the catalogue describes it."""

    name: str
    provider: str
    id: str
    """What the provider calls it; the name unless said otherwise."""
    context: int | None = None
    """Tokens, prompt and answer together."""
    images: bool = False
    logprobs: bool = False
    prompt_logprobs: bool = False
    """Whether it can score a given text."""
    n: bool = False
    """Whether one request may ask for several samples."""
    price: Price | None = None
    """None is unknown, which is not free."""
    price_date: str | None = None
    max_tokens_field: str = "max_tokens"
    drop: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    efforts: tuple[str, ...] = ()
    """Levels of reasoning effort that it knows; empty is unknown, and only clients of its own protocol set one."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """Accuracy by expert, in [0, 1], where it has been measured."""
