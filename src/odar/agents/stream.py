"""The answer of one question while it is generated: text, drafts and progress messages."""

from __future__ import annotations

from collections.abc import Callable

from odar.conversation import Wire
from odar.providers.base import Delta, OnDelta
from odar.types import Decision, Plan

PROGRESS = Wire("odar", {})
"""Wire format of thinking that ODAR writes itself, which no provider has signed."""


class StreamedAnswer:
    """Forwards an answer while it is generated, and records whether it has begun.

    Args:
        on_text: receives the text of the answer: while it is generated if no other answer can replace it, otherwise
            whole, by `finish`.
        on_delta: receives everything, including tool calls; no other answer can replace what it got, as over HTTP.
        progress: whether drafts and progress messages are forwarded too, as thinking.

    >>> parts: list[Delta] = []
    >>> stream = StreamedAnswer(None, parts.append)
    >>> answer = stream.handler_of(Decision(None, "", final=True))
    >>> answer(Delta("Par"))
    >>> stream.committed
    True
    """

    def __init__(
        self, on_text: Callable[[str], None] | None, on_delta: OnDelta | None = None, *, progress: bool = False
    ) -> None:
        self._progress = on_delta if progress else None
        self._on_text = on_text
        self._on_delta = on_delta
        self._started = False

    def handler_of(self, decision: Decision) -> OnDelta | None:
        """The callback for the provider of a stage; None without a receiver.

        Its text is the answer if no other stage can follow, else a draft, which another answer may replace.
        """
        if not decision.final:
            return None if self._progress is None else lambda delta: self._tell(delta.text)
        return None if self._on_text is None and self._on_delta is None else self._forward

    def announce(self, decision: Decision, plan: Plan) -> None:
        """Report a stage whose text is not the answer yet."""
        if decision.stage is not None and not decision.final:
            models = ", ".join(f"{ask} ({plan.models.get(ask.agent, '')})" for ask in decision.stage.asks)
            self._tell(f"{models}: {decision.reason}\n\n")

    def finish(self, text: str) -> None:
        """Give the whole text to `on_text`, if it has none of it yet."""
        if self._on_text is not None and not self._started:
            self._on_text(text)

    @property
    def committed(self) -> bool:
        """Whether another answer can no longer replace this one."""
        return self._on_delta is not None and self._started

    def _tell(self, text: str) -> None:
        if text and self._progress is not None:
            self._progress(Delta(thinking=text, wire=PROGRESS))

    def _forward(self, delta: Delta) -> None:
        self._started = self._started or bool(delta.text or delta.tool_calls)  # thinking commits to nothing
        if self._on_delta is not None:
            self._on_delta(delta)
        if self._on_text is not None and delta.text:
            self._on_text(delta.text)
