"""How prompt sets compare on the same questions: accuracy, tokens, cut-off and unstated answers (SPEC 3.7)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from odar.recording.schema import RecordedItem
from odar.types import Step


@dataclass(frozen=True, slots=True)
class PromptResult:
    """How the prompt of one step did."""

    prompts: str
    """The prompt set: a shipped name or a folder."""
    step: str
    answers: int
    accuracy: float
    """Mean score of the answers."""
    tokens: float
    """Mean output tokens of an answer."""
    cut_off: float
    """Share of answers that ended at the token budget."""
    unstated: float
    """Share of answers that did not mark their final answer."""

    @property
    def accuracy_per_100_tokens(self) -> float:
        """The figure by which prompt sets are compared: what a token buys."""
        return 100 * self.accuracy / self.tokens if self.tokens else 0.0


def prompt_results(prompts: str, items: Iterable[RecordedItem]) -> list[PromptResult]:
    """Return the figures of each step that has answers."""
    attempts = [attempt for item in items for attempt in item.attempts]
    found = []
    for step in Step:
        own = [attempt for attempt in attempts if attempt.step is step]
        if own:
            found.append(
                PromptResult(
                    prompts,
                    step.value,
                    len(own),
                    accuracy=sum(attempt.score or 0.0 for attempt in own) / len(own),
                    tokens=sum(attempt.usage.output or len(attempt.tokens) for attempt in own) / len(own),
                    cut_off=sum(attempt.finish == "length" for attempt in own) / len(own),
                    unstated=sum(not attempt.stated for attempt in own) / len(own),
                )
            )
    return found
