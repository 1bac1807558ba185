"""Timing of the calls of one question: an early fast answer, slow samples in waves, streamed text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar

from odar.agents.team import Team
from odar.background import run_in_thread
from odar.conversation import Wire
from odar.errors import OdarError
from odar.policy.fusion import Fusion
from odar.policy.stopping import Stopping
from odar.providers.base import Delta, OnDelta
from odar.types import Candidate, Decision, Path

T = TypeVar("T")
PROGRESS = Wire("odar", {})
"""Wire format of thinking that ODAR writes itself, which no provider has signed."""


class FastAnswer:
    """The fast agent's answer, with which every path begins (SPEC 1). It is requested only once.

    Args:
        team: the agents.
        ahead: whether to request it now, while the difficulty is estimated. It is not requested ahead if another
            agent cannot be used, because the question will fail.
        second_opinion: whether to request a second sample, to see whether it agrees (SPEC 5.11).

    Leaving the block cancels a running request.
    """

    def __init__(self, team: Team, *, ahead: bool, second_opinion: bool = False) -> None:
        self.second: Candidate | None = None
        """The second sample, which does not vote; None before the first call."""
        self._team = team
        self._second_opinion = second_opinion
        self._task: asyncio.Task[list[Candidate]] | None = None
        self._answers: list[Candidate] | None = None
        if ahead:
            with suppress(OdarError):
                team.check(*team.cards)
                self._task = asyncio.create_task(team.answer(None, 2 if second_opinion else 1))

    async def __call__(self, on_delta: OnDelta | None = None, samples: int = 1) -> list[Candidate]:
        """Return the answer, or several; later calls return the result of the first."""
        if self._answers is None:
            two_samples = self._second_opinion and on_delta is None and samples == 1
            if self._task is not None:
                answers = await self._task
            else:
                answers = await self._team.answer(on_delta, 2 if two_samples else samples)
            if two_samples or self._task is not None:
                self.second = answers[1] if len(answers) > 1 else None
                answers = answers[:1]
            self._answers = answers
        return self._answers

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class StreamedAnswer:
    """Forwards an answer while it is generated, and records whether it has begun.

    Args:
        on_text: receives the text.
        on_delta: receives everything, including tool calls.
        final: whether forwarded text cannot be replaced, as over HTTP.
        progress: whether drafts and progress messages are forwarded too, as thinking.

    >>> stream = StreamedAnswer(print, final=True)
    >>> stream.handler(Delta("Par"))
    Par
    >>> stream.committed
    True
    """

    def __init__(
        self,
        on_text: Callable[[str], None] | None,
        on_delta: OnDelta | None = None,
        *,
        final: bool = False,
        progress: bool = False,
    ) -> None:
        self._progress = on_delta if progress else None
        self._on_text = on_text
        self._on_delta = on_delta
        self._final = final
        self._started = False

    @property
    def handler(self) -> OnDelta | None:
        """The callback for providers; None without a receiver."""
        return None if self._on_text is None and self._on_delta is None else self._forward

    @property
    def draft(self) -> OnDelta | None:
        """The callback for the provider of a draft, which another answer may replace; None if drafts are hidden."""
        return None if self._progress is None else lambda delta: self.progress(delta.text)

    def progress(self, text: str) -> None:
        """Report progress while there is no answer yet."""
        if text and self._progress is not None:
            self._progress(Delta(thinking=text, wire=PROGRESS))

    def announce(self, decision: Decision) -> None:
        """Report the steps of the chosen path; nothing on the Simple path."""
        fast, slow = decision.assignment.fast, decision.assignment.slow
        if decision.alone:
            work = f"{slow} answers."
        elif decision.path is Path.HARD:
            work = f"{fast} drafts an answer, up to {decision.samples} of {slow} are compared with it."
        else:
            work = f"{fast} drafts an answer, {slow} checks it."
        if decision.path is not Path.SIMPLE:
            self.progress(f"Difficulty {decision.difficulty:.2f}, {decision.path}: {work}\n\n")

    @property
    def committed(self) -> bool:
        """Whether another answer can no longer replace this one."""
        return self._final and self._started

    def _forward(self, delta: Delta) -> None:
        self._started = self._started or bool(delta.text or delta.calls)  # after thinking, any answer can follow
        if self._on_delta is not None:
            self._on_delta(delta)
        if self._on_text is not None and delta.text:
            self._on_text(delta.text)


@dataclass(frozen=True, slots=True)
class Sampler:
    """Takes slow samples in waves, until the leading answer is settled (SPEC 5.12)."""

    stopping: Stopping
    fusion: Fusion

    async def sample(self, team: Team, samples: int) -> list[Candidate]:
        """Return at most `samples` answers of the slow agent."""
        candidates: list[Candidate] = []
        asked = 0

        async def settled(new: Sequence[Candidate]) -> bool:
            so_far = (*candidates, *new)
            if self.stopping.confidence is None or not so_far:
                return False
            votes = await run_fusion(self.fusion, partial(self.fusion.votes, so_far, team.query.text))
            return self.stopping.is_settled(votes, samples - len(so_far))

        while asked < samples and not await settled([]):
            size = samples - asked if asked else self.stopping.first_size(samples)
            # The first wave is always completed: stopping at two equal answers lost two points of accuracy on
            # recorded samples (docs/lab-notes.md).
            wave = await team.solve(size, first=asked, enough=settled if asked else None)
            candidates += wave
            asked += size
            if not wave:
                break  # the agent is down or a limit is reached; asking again would fail again
        return candidates


async def run_fusion(fusion: Fusion, decide: Callable[[], T]) -> T:
    """Call a function that compares candidates, in a thread if the similarity is slow."""
    return await run_in_thread(decide) if fusion.slow_similarity else decide()


async def gather_or_cancel(first: Coroutine[Any, Any, T], second: Coroutine[Any, Any, T]) -> tuple[T, T]:
    """Run two coroutines at once; if one raises, cancel and await the other."""
    tasks = [asyncio.ensure_future(first), asyncio.ensure_future(second)]
    try:
        one, two = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return one, two
