"""Catalogue entries of models: provider, capabilities and price (SPEC 4.2).

Cards come from `catalogue.toml`, overridden by the user's own `[models."name"]` tables. A model at a level of
reasoning effort is a model of its own, `gpt-5.4@high`: its skill and the length of its answers are its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from odar.errors import SettingsError
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
    """Input that the provider writes to its cache; None if unknown."""
    written_1h: float | None = None
    """Input that is kept in the cache for an hour; None if unknown."""
    up_to: int | None = None
    """Longest prompt, in tokens, with these prices; None if there is no limit."""

    @property
    def free(self) -> bool:
        return not (self.input or self.cached or self.output or self.written or self.written_1h)

    @property
    def max_input_price(self) -> float:
        """The highest known price of a prompt token."""
        return max(self.input, self.cached, self.written or 0.0, self.written_1h or 0.0)

    def cost(self, usage: Usage) -> float | None:
        """The cost of this usage; None if a count or a price that it needs is unknown (SPEC 6.1)."""
        if self.free:
            return 0.0
        if usage.input is None or usage.output is None or usage.unpriced:
            return None
        if self.up_to is not None and usage.input > self.up_to:
            return None
        cached = usage.cached or 0
        uncached = usage.input - cached - (usage.written or 0)
        written_cost = self._written_cost(usage)
        if uncached < 0 or written_cost is None:  # the counts contradict each other, or one is unknown
            return None
        total = uncached * self.input + cached * self.cached + written_cost + usage.output * self.output
        return total / 1_000_000

    def _written_cost(self, usage: Usage) -> float | None:
        """The cost of writing to the cache, in millionths of a dollar."""
        if not usage.written:
            return 0.0
        if usage.written_1h is None:  # the part with the higher price is unknown
            return None
        short = usage.written - usage.written_1h
        if short < 0 or (short and self.written is None) or (usage.written_1h and self.written_1h is None):
            return None
        return short * (self.written or 0.0) + usage.written_1h * (self.written_1h or 0.0)


REASONING_TOKENS: Mapping[str, int] = {
    "none": 0, "minimal": 256, "low": 600, "medium": 2_000, "high": 6_000, "xhigh": 12_000, "max": 24_000,
}  # fmt: skip
"""Levels of reasoning effort, and the usual length of such reasoning in tokens, assumed until it is measured."""
REASONING_ROOM = 4
"""How much longer than usual reasoning may be before it is cut off."""


def split_effort(model: str) -> tuple[str, str]:
    """The name of a model without its effort, and the effort, or an empty string.

    >>> split_effort("gpt-5.4@high"), split_effort("claude@20250514")
    (('gpt-5.4', 'high'), ('claude@20250514', ''))
    """
    base, _, effort = model.rpartition("@")
    return (base, effort) if base and effort in REASONING_TOKENS else (model, "")


FAMILIES: Mapping[str, str] = {
    "gpt": "gpt", "o1": "gpt", "o3": "gpt", "o4": "gpt", "claude": "claude", "gemini": "gemini", "gemma": "gemini",
    "qwen": "qwen", "qwq": "qwen", "llama": "llama", "mistral": "mistral", "mixtral": "mistral",
    "ministral": "mistral", "codestral": "mistral", "deepseek": "deepseek", "phi": "phi", "grok": "grok",
    "command": "command", "nova": "nova", "smollm": "smollm", "glm": "glm", "kimi": "kimi", "yi-": "yi",
}  # fmt: skip
"""Parts of model names, and the family that they stand for."""


@dataclass(frozen=True, slots=True)
class ModelCard:
    """The catalogue entry of one model."""

    name: str
    provider: str
    id: str
    """Name of the model at the provider."""
    context: int | None = None
    """Context length in tokens, prompt and answer together."""
    images: bool = False
    logprobs: bool = False
    n: bool = False
    """Whether it can return several samples of one request."""
    price: Price | None = None
    """None if unknown, which does not mean free."""
    price_date: str | None = None
    max_tokens_field: str = "max_tokens"
    drop: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    efforts: tuple[str, ...] = ()
    """Levels of reasoning effort; empty if unknown, and then only clients of its own protocol set one."""
    effort: str = ""
    """The level at which it is asked; empty for the model's own default."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """Measured accuracy in [0, 1] by expert."""
    family: str = ""
    parameters: float | None = None
    """Size in billions."""

    @property
    def model_family(self) -> str:
        """The family that is set, else the one in the model's name, else the provider.

        >>> [ModelCard(name, "p", name).model_family for name in ("gpt-4.1-nano", "qwen/Qwen3-4B", "x1")]
        ['gpt', 'qwen', 'p']
        """
        found = self.family or next((f for part, f in FAMILIES.items() if part in self.id.lower()), "")
        return found or self.provider

    def at_effort(self, effort: str, kind: str, *, listed: bool = True) -> ModelCard:
        """The card of this model at a level of reasoning effort.

        Args:
            effort: the level.
            kind: protocol of its provider. OpenAI's has `reasoning_effort`. Anthropic's has `output_config.effort`
                with adaptive thinking; models up to Claude 4.5, which the catalogue lists without `efforts`, have a
                budget of thinking tokens.
            listed: whether the model is in the catalogue.

        Raises:
            SettingsError: the provider or the model has no such level.
        """
        if kind == "local":
            raise SettingsError(f"{self.name}: models in this process have no reasoning effort; leave effort out")
        if self.efforts and effort not in (*self.efforts, "none"):
            levels = ", ".join(self.efforts)
            raise SettingsError(
                f"{self.name} has no reasoning effort {effort!r}; it has {levels}, or set efforts in "
                f'[models."{self.name}"]'
            )
        extra = {name: value for name, value in self.extra.items() if name != "reasoning_effort"}
        changes: dict[str, Any] = {"effort": effort}
        if kind == "anthropic" and (self.efforts or not listed):
            extra["thinking"] = {"type": "disabled" if effort == "none" else "adaptive"}
        elif kind == "anthropic" and effort != "none":
            extra["thinking"] = {"type": "enabled", "budget_tokens": REASONING_ROOM * REASONING_TOKENS[effort]}
        elif self.extra.get("reasoning_effort") == "none" and effort != "none":
            # the catalogue switches reasoning off for models that have these only without it
            changes |= {"logprobs": False, "drop": (*self.drop, "temperature", "top_p")}
        return replace(self, **changes, extra=extra)
