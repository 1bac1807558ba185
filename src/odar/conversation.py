"""The parts of a conversation: turns, tools, and the parameters of a request.

A plain question is a conversation of one turn without parameters (`types.Query`), so the engine has one code path.
Content that these types cannot represent is kept as `Wire`, in the client's protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class Image:
    """An image of a question: its bytes, or its URL."""

    media_type: str
    data: bytes = b""
    url: str | None = None


class Wire(NamedTuple):
    """A part of a message in its protocol, sent unchanged to servers of the same protocol."""

    protocol: str
    """openai or anthropic."""
    value: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's call of one of the client's tools."""

    id: str
    name: str
    arguments: str
    """JSON as the model wrote it, possibly invalid."""

    def __str__(self) -> str:
        return f"{self.name}({self.arguments})"


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str
    """system, user, assistant or tool."""
    text: str
    images: tuple[Image, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    """Tool calls by the assistant in this turn."""
    tool_call_id: str | None = None
    """Id of the call whose result a tool turn is."""
    wire: Wire | None = None
    """The turn as the client wrote it, if the fields above cannot hold all of it."""
    untranslated: tuple[str, ...] = ()
    """Types of content that only `wire` holds; they cannot be sent to a server of another protocol."""
    bound: tuple[int, bool] | None = field(default=None, init=False, repr=False, compare=False)
    """The result of `ledger.input_bound`, which is needed several times and takes long for a long text."""


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
    """Rule for calling tools: mode is auto, none, required or tool, the last with a name."""

    mode: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Format:
    """The required format of an answer: any JSON object, or one that matches a schema."""

    schema: Mapping[str, Any] | None = None
    name: str = "answer"
    wire: Wire | None = None


@dataclass(frozen=True, slots=True)
class ChatParameters:
    """What a client wants of the answer. None means the agent's own setting.

    How ODAR gets this answer is another matter: see `odar.options.AskOptions`.
    """

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
    effort: str | None = None
    """Level of reasoning effort, by its name in `protocol`."""
    betas: tuple[str, ...] = ()
    """Preview features of Anthropic that the client requests (the header anthropic-beta)."""
    left_out: tuple[str, ...] = ()
    """Types of items that cannot be part of a conversation, such as web_search_call."""
    protocol: str = "openai"
    """Protocol of `extra`, which is only sent to servers of this protocol."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the client's request; `odar.forwarding` decides which are sent on."""


NO_PARAMETERS = ChatParameters()
