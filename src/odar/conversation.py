"""The parts of a conversation: turns, tools, and the options of a request.

A plain question is a conversation of one turn without options (`types.Query`), so the engine has one code path.
Content that these types cannot represent is kept as `Wire`, in the client's protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class Image:
    """An image that belongs to a question: its bytes, or its address."""

    media_type: str
    data: bytes = b""
    url: str | None = None


class Wire(NamedTuple):
    """A part of a message in its protocol: a server of the same protocol gets it unchanged."""

    protocol: str
    """openai or anthropic."""
    value: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's call of one of the client's tools."""

    id: str
    name: str
    arguments: str
    """JSON, as the model wrote it: it may be broken."""

    def __str__(self) -> str:
        return f"{self.name}({self.arguments})"


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation: role is system, user, assistant or tool."""

    role: str
    text: str
    images: tuple[Image, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    """What the assistant called in this turn."""
    tool_call_id: str | None = None
    """Which call a tool turn is the result of."""
    wire: Wire | None = None
    """The turn as the client wrote it, where it holds more than the fields above can."""
    untranslated: tuple[str, ...] = ()
    """Kinds of content that only `wire` holds: a server of another protocol cannot be sent them."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function of the client's that a model may call."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] | None = None
    """JSON schema of its arguments."""
    wire: Wire | None = None
    hosted: str = ""
    """The type of a tool that a provider runs or defines, such as web_search_20250305; empty for a function."""


class ToolChoice(NamedTuple):
    """Whether a model must call a tool: mode is auto, none, required or tool, the last with a name."""

    mode: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Format:
    """The form an answer must have: any JSON object, or one that fits a schema."""

    schema: Mapping[str, Any] | None = None
    name: str = "answer"
    wire: Wire | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a request. None means the agent's own setting."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    max_tokens_field: str = ""
    """Name of the field in the client's request; a model that is passed through gets it by that name."""
    stop: tuple[str, ...] | None = None
    seed: int | None = None
    n: int = 1
    """Answers to return."""
    top_logprobs: int | None = None
    """Return log-probabilities with this many alternatives."""
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tools: bool | None = None
    format: Format | None = None
    user: str | None = None
    """The client's own name for its user."""
    effort: str | None = None
    """How hard a reasoning model should think, in the words of `protocol`."""
    betas: tuple[str, ...] = ()
    """Anthropic's preview features that the client asks for (the header anthropic-beta)."""
    left_out: tuple[str, ...] = ()
    """Types of content that could not be read into a conversation, such as web_search_call."""
    protocol: str = "openai"
    """Protocol of `extra`, which is only sent to servers of this protocol."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the client's request; `odar.forwarding` decides which are sent on."""


NO_OPTIONS = Options()
