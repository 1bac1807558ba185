"""What every provider is: a `Request` in, a `Reply` out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from odar.types import NO_USAGE, Image, Token, Usage

OnText = Callable[[str], None]
"""Called with each piece of text as it is generated."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation: role is system, user or assistant."""

    role: str
    text: str
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the model is to sample."""

    temperature: float = 0.2
    top_p: float = 0.9
    max_tokens: int = 512
    stop: tuple[str, ...] = ()
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Quirks:
    """How one model's parameters differ from the common ones; comes from the catalogue."""

    max_tokens_field: str = "max_tokens"
    """Newer OpenAI models want `max_completion_tokens`."""
    drop: tuple[str, ...] = ()
    """Body fields this model refuses, such as temperature on reasoning models."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further body fields, put in as they are, such as reasoning_effort."""


@dataclass(frozen=True, slots=True)
class Request:
    """A provider-neutral request for `n` samples of one conversation."""

    model: str
    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    n: int = 1
    logprobs: bool = True
    timeout_s: float = 60.0
    """From now until the whole reply is here, retries included."""
    quirks: Quirks = Quirks()


@dataclass(frozen=True, slots=True)
class Completion:
    """One sample."""

    text: str
    tokens: tuple[Token, ...] = ()
    finish: str = "stop"
    """stop · length · content_filter · tool_calls, in OpenAI's words."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: up to `n` completions, and what they cost."""

    completions: tuple[Completion, ...]
    usage: Usage = NO_USAGE
    model: str = ""
    """The model as the server names it."""
    retries: int = 0


class Provider(Protocol):
    """A way to reach models.

    `complete` raises `ProviderError` (or a kind of it) and nothing else, returns within
    `request.timeout_s`, and leaves no task or connection busy when it is cancelled.
    """

    name: str

    async def complete(self, request: Request, on_text: OnText | None = None) -> Reply:
        """Answer the request; with `on_text` and n = 1, hand over the text as it comes."""
        ...

    async def check(self) -> str:
        """One line on whether this provider can be reached; raises ProviderError if it cannot."""
        ...

    async def close(self) -> None:
        """Let go of pools, threads and weights. Idempotent."""
        ...
