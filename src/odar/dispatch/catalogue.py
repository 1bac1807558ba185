"""What is known of a model: where it lives, what it can do, what it costs (SPEC 4.2).

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

    def cost(self, usage: Usage) -> float | None:
        """What this usage costs; None where a count is unknown and would matter."""
        if self == FREE:
            return 0.0
        if usage.input is None or usage.output is None:
            return None
        cached = usage.cached or 0
        return ((usage.input - cached) * self.input + cached * self.cached + usage.output * self.output) / 1_000_000


FREE = Price(0.0, 0.0, 0.0)
"""A model that runs on the user's own machine."""


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
    n: bool = False
    """Whether one request may ask for several samples."""
    price: Price | None = None
    """None is unknown, which is not free."""
    price_date: str | None = None
    max_tokens_field: str = "max_tokens"
    drop: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    """Accuracy by expert, in [0, 1], where it has been measured."""
