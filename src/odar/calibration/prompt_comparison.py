"""Prompt sets compared on questions with known answers: accuracy, tokens, cut-off and unstated answers per role.

Every question is answered, verified and solved with each prompt set, exactly as a recording does it (SPEC 3.7).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace

from odar.engine import Odar
from odar.recording.collect import ItemCalls, Job, finish
from odar.recording.journal import Memo
from odar.recording.schema import Attempt
from odar.settings import Settings
from odar.types import Step


@dataclass(frozen=True, slots=True)
class PromptResult:
    """How one prompt of a set did."""

    prompts: str
    step: Step
    answers: int
    accuracy: float
    """Mean score by the metric of each set."""
    tokens: float
    """Mean output tokens of an answer."""
    cut_off: float
    """Share of answers that ended at the token budget."""
    unstated: float
    """Share of answers that did not mark their final answer."""

    @property
    def accuracy_per_100_tokens(self) -> float:
        """What a token buys: the figure by which prompt sets are compared."""
        return 100 * self.accuracy / self.tokens if self.tokens else 0.0


async def compare_prompts(
    settings: Settings,
    names: Sequence[str],
    jobs: Sequence[Job],
    *,
    samples: int = 1,
    make_engine: Callable[[Settings], Odar] = Odar,
) -> AsyncIterator[PromptResult]:
    """Yield one result per prompt set and step, as soon as it is known.

    Args:
        settings: models, sampling and token budgets.
        names: shipped prompt sets, or folders with `answer.toml`, `verify.toml` and `solve.toml`.
        jobs: the questions; never those that will be used to judge.
        samples: slow answers per question.
        make_engine: makes the engine for the settings of a prompt set.
    """
    for name in names:
        tried = replace(settings, prompts=name, routing=replace(settings.routing, samples=samples))
        attempts: list[Attempt] = []
        async with make_engine(tried) as odar:
            for job in jobs:
                calls = ItemCalls(odar, job, Memo({}, lambda name, value: None))
                await calls.run()
                attempts += finish(odar, job, calls.assignment, calls.attempts).attempts
        for step in Step:
            yield summarise(name, step, [attempt for attempt in attempts if attempt.step is step])


def summarise(prompts: str, step: Step, attempts: Sequence[Attempt]) -> PromptResult:
    """Return the figures of one prompt; zeros if it has no answers."""
    count = max(1, len(attempts))
    return PromptResult(
        prompts,
        step,
        len(attempts),
        accuracy=sum(attempt.score or 0.0 for attempt in attempts) / count,
        tokens=sum(attempt.usage.output or len(attempt.tokens) for attempt in attempts) / count,
        cut_off=sum(attempt.finish == "length" for attempt in attempts) / count,
        unstated=sum(not attempt.stated for attempt in attempts) / count,
    )
