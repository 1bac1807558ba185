"""The provider interface: a `Request` in, a `Reply` out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from odar.conversation import NO_PARAMETERS, ChatParameters, ToolCall, Wire
from odar.conversation import Message as Message  # part of a provider's vocabulary
from odar.errors import ProviderError
from odar.types import NO_USAGE, Token, Usage


@dataclass(frozen=True, slots=True)
class Delta:
    """A part of an answer while it is generated.

    >>> Delta("Hi").text, Delta(tool_calls=((0, ToolCall("call_1", "look_up", "")),)).tool_calls[0][1].name
    ('Hi', 'look_up')
    """

    text: str = ""
    tool_calls: tuple[tuple[int, ToolCall], ...] = ()
    """Parts of tool calls with the index of the call: the first has id and name, each some of the arguments."""
    wire: Wire | None = None
    """The event as the provider sent it, if the other fields cannot represent all of it."""
    thinking: str = ""
    """Reasoning before the answer, and never part of it; shown if the client's protocol supports it."""


OnDelta = Callable[[Delta], None]
"""Called with each part of an answer while it is generated."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters; None leaves one to the server."""

    temperature: float | None = 0.2
    top_p: float | None = 0.9
    max_tokens: int | None = 512
    stop: tuple[str, ...] = ()
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A provider-neutral request for `n` samples of one conversation."""

    model: str
    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    n: int = 1
    logprobs: bool = True
    """Whether to ask for log-probabilities, with `parameters.top_logprobs` alternatives and at least one."""
    timeout_s: float = 60.0
    """Timeout for the whole reply, retries included."""
    retry_billed: bool = True
    """Whether to try again after an attempt that may have been billed; False under a limit on calls or money."""
    short_timeout: bool = field(default=False, repr=False)
    """Whether `timeout_s` is shorter than configured, for example for a client with its own deadline; then a
    timeout does not count against the provider."""
    unlisted_model: bool = field(default=False, repr=False)
    """Whether the client chose a model that is not in the catalogue; then an error status does not count against
    the provider."""
    retry_rate_limit: bool = field(default=True, repr=False)
    """Whether to try again after a 429; False if the caller chose the model, or another model is available."""
    take_retry: Callable[[], bool] = field(default=lambda: True, repr=False, compare=False)
    """Called before each retry; returns whether the question has a retry left."""
    max_tokens_field: str = "max_tokens"
    """The model's name for the length limit; `max_completion_tokens` for newer OpenAI models."""
    drop: tuple[str, ...] = ()
    """Body fields that the model rejects, such as temperature on reasoning models."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further body fields for the model, sent unchanged, such as reasoning_effort."""
    effort: str = ""
    """Level of reasoning effort, in place of the client's."""
    cache: bool = True
    """Whether the prompt may be written to a cache that charges for it; False if that price is unknown."""
    parameters: ChatParameters = NO_PARAMETERS
    """The client's tools, format and other parameters. Its sampling parameters are already part of `sampling`."""

    @property
    def image_bytes(self) -> int:
        """Bytes of all images, which take time to encode."""
        return sum(len(image.data) for message in self.messages for image in message.images)


@dataclass(frozen=True, slots=True)
class Completion:
    """One sample."""

    text: str
    tokens: tuple[Token, ...] = ()
    finish: str = "stop"
    """Finish reason in OpenAI's terms: stop · length · content_filter · tool_calls."""
    tool_calls: tuple[ToolCall, ...] = ()
    wire: Wire | None = field(default=None, repr=False, compare=False)
    """The choice as the server sent it."""

    @property
    def delta(self) -> Delta:
        """The whole sample as one part of a stream."""
        return Delta(self.text, tuple(enumerate(self.tool_calls)))


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of a request: up to `n` completions and their usage."""

    completions: tuple[Completion, ...]
    usage: Usage = NO_USAGE
    model: str = ""
    """The model as the server names it."""
    retries: int = 0


def wire_value(wire: Wire | None, protocol: str) -> Any:
    """The original JSON of a message if it was written in this protocol, or None."""
    return wire.value if wire is not None and wire.protocol == protocol else None


def check_translatable(messages: Iterable[Message], protocol: str) -> None:
    """Raise ProviderError if a message has content that this protocol cannot represent."""
    for message in messages:
        if message.untranslated and wire_value(message.wire, protocol) is None:
            kinds = ", ".join(message.untranslated)
            raise ProviderError(
                f"the conversation contains content of type {kinds}, which has no form in the {protocol} protocol; "
                "choose a model of the provider that it was written for",
                status=400,
                code="unsupported_content",
            )


class Provider(ABC):
    """Base class of providers. A subclass implements `complete`, and any other method that it supports.

    `complete` and `forward` raise only `ProviderError` and its subclasses, return within
    `request.timeout_s`, and leave no task or connection busy when they are cancelled.
    """

    name: str

    @abstractmethod
    async def complete(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        """Answer the request; with `on_delta` and n = 1, pass on the text while it is generated."""

    async def forward(self, address: str, body: Mapping[str, Any], request: Request) -> Reply:
        """Send a body to an address of the server; the `wire` of the first completion is the response.

        For requests that are not conversations, such as embeddings; `request` has texts, length limit and timeout.
        """
        reason = f"{self.name} has no {address}; name a model of a provider of kind openai"
        raise ProviderError(reason, provider=self.name, status=400, may_be_billed=False, reached=False)

    async def prepare(self, model: str) -> None:  # noqa: B027 - an optional method
        """Download and load a model before its first call. Raises nothing: that call reports the failure."""

    async def check(self, model: str = "") -> str:
        """One line about the provider; ProviderError if it, or this model of it, is not available."""
        return "ready"

    async def close(self) -> None:  # noqa: B027 - an optional method
        """Close connections and unload models. Idempotent."""
