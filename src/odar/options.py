"""Options of one question."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypedDict

from odar.agents.ledger import Ledger
from odar.inputs import ImageSource
from odar.policy.dial import Dial
from odar.policy.session import SessionRequest
from odar.providers.base import Completion, OnDelta
from odar.types import Call, Decision, Plan, Route


@dataclass(frozen=True, slots=True, kw_only=True)
class AskOptions:
    """Options of one question. Those below `ledger` are for servers.

    What a client wants of the answer itself (tools, format, sampling) is in `Query.parameters`.
    """

    images: Iterable[ImageSource] = ()
    """Files, URLs, or `Image`s."""
    path: Route | str | None = None
    """One of the paper's paths, simple, medium or hard, in place of the policy."""
    dial: Dial | str | float | None = None
    """economy, balanced, quality or points of accuracy, in place of the settings'."""
    seed: int | None = None
    """Makes sampling repeatable if the provider can."""
    max_calls: int | None = None
    max_cost_usd: float | None = None
    deadline_s: float | None = None
    """Wall time, at most; answers that are ready by then are used."""
    short: bool = False
    """Ask for a final answer in short also where nothing is compared, so that `Answer.final` can be graded."""
    on_text: Callable[[str], None] | None = None
    """Receives the text while it is generated, if no other stage can follow."""

    ledger: Ledger | None = None
    """A ledger from `Odar.agents`, in place of a new one with the three limits."""
    on_delta: OnDelta | None = None
    """Receives every part of the answer while it is generated, including tool calls. A failure after the first text
    is raised, because another answer could not replace it."""
    on_decision: Callable[[Decision, Plan], None] | None = None
    """Receives every decision before it is carried out."""
    model: str | None = None
    """Send the request unchanged to this model, without ODAR's prompts and settings."""
    progress: bool = False
    """Send drafts and progress messages to `on_delta` as thinking, while there is no answer yet."""
    trace_id: str | None = None
    scope: str = "request"
    """Questions with the same scope and target meet it together, such as those of one API key."""
    max_path: Route | None = None
    """The most expensive path that key and budget allow."""
    session: SessionRequest | None = None
    """The conversation of the question."""
    known_reply: tuple[Completion, Call] | None = None
    """A reply of the slow agent's model that exists already, and its call: used in place of its first answer."""

    @property
    def forced(self) -> bool:
        """Whether the caller chose the path or the model."""
        return self.path is not None or self.model is not None


DEFAULT_OPTIONS = AskOptions()


class AskKeywords(TypedDict, total=False):
    """Those of `AskOptions` that can be given as keywords, for type checkers."""

    images: Iterable[ImageSource]
    path: Route | str | None
    dial: Dial | str | float | None
    seed: int | None
    max_calls: int | None
    max_cost_usd: float | None
    deadline_s: float | None
    short: bool
    on_text: Callable[[str], None] | None
