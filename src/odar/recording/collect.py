"""Collecting a recording: both agents answer every item once, and each answer is on disk as soon as it arrives.

A run can be resumed after any request: an answer that the journal holds is not requested again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from odar.difficulty.base import estimate_turn
from odar.difficulty.features import phi
from odar.engine import Odar
from odar.errors import OdarError
from odar.recording.executor import Item, Outcome, Work, failure
from odar.recording.journal import Memo, digest_of, write_in_thread
from odar.recording.limits import Needs
from odar.recording.schema import (
    Attempt,
    ItemKey,
    RecordedItem,
    SurrogateScore,
    Task,
    attempt_from_json,
    attempt_to_json,
    attempts_of,
    features_of,
    item_to_json,
    row_id,
    sort_attempts,
    sum_costs,
    total_cost,
)
from odar.recording.work import use_memo, used_amounts, worst_case
from odar.types import Assignment, Call, Candidate, Step


class TaskSet(Protocol):
    """A set of tasks with a scorer: a benchmark, or a user's file."""

    @property
    def name(self) -> str:
        """Name of the set."""
        ...

    @property
    def category(self) -> str:
        """Category of the questions: one of the paper's eight for a benchmark."""
        ...

    @property
    def metric(self) -> str:
        """Name of the score: accuracy, EM, F1, …"""
        ...

    def score(self, task: Task, response: str, answer: str) -> float:
        """Score a response from 0 to 1; `answer` is the final answer that was parsed from it."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """One item to collect."""

    source: TaskSet
    task: Task
    fold: int
    seed: int

    @property
    def key(self) -> ItemKey:
        """Its key in the recording."""
        return ItemKey(self.source.name, self.task.id, self.seed)


def make_items(odar: Odar, jobs: Iterable[Job]) -> list[Item]:
    """Return the jobs as work items, each with its maximum needs and cost."""
    steps = ((Step.ANSWER, 1), (Step.VERIFY, 1), (Step.SOLVE, odar.settings.routing.samples))
    return [
        Item(
            row_id(job.key),
            job,
            digest_of(job.task.query, job.task.gold, job.task.split),
            *worst_case(odar, job.task.query, steps, scored=True),
        )
        for job in jobs
    ]


def collect_work(odar: Odar) -> Work:
    """Return the work with one engine; a module-level function, so that it can be pickled."""
    scoring = asyncio.Lock()  # scorers and parsers need not be thread-safe

    async def collect_item(item: Item, memo: Memo) -> Outcome:
        job: Job = item.payload
        calls = ItemCalls(odar, job, memo)
        try:
            await calls.run()
            async with scoring:
                # In a thread: the first item loads a parser, which takes seconds on a busy machine, and replies to
                # other items must be sent in the meantime.
                recorded = await asyncio.to_thread(score_item, odar, job, calls.assignment, calls.attempts)
        except OdarError as error:
            return failure(item, error, calls.used(item), cost_usd=calls.cost())
        return Outcome(item_to_json(replace(recorded, digest=item.digest)), calls.used(item))

    return collect_item


class ItemCalls:
    """The requests for one item, their answers and their cost."""

    def __init__(self, odar: Odar, job: Job, memo: Memo) -> None:
        self.odar = odar
        self.job = job
        self.memo = memo
        self.assignment = odar.dispatcher.assign(job.task.query)
        kept = (rows for name, rows in memo.known.items() if name.partition(":")[0] in list(Step))
        self.attempts = [attempt_from_json(row) for rows in kept for row in rows]
        self._calls: list[Call] = []
        self._failed_costs: list[float | None] = []
        """Cost of requests that gave no answer."""

    async def run(self) -> None:
        """Request what is missing: the fast answer, its verification, the slow samples, surrogate scores."""
        for step in (Step.ANSWER, Step.VERIFY):
            if not self._attempts_at(step):
                await self._request(step, 1, 0)
        samples, together = self.odar.settings.routing.samples, self.odar.settings.card(self.assignment.slow).n
        while missing := sorted(set(range(samples)) - {each.index for each in self._attempts_at(Step.SOLVE)}):
            if together and missing == list(range(missing[0], samples)):
                await self._request(Step.SOLVE, len(missing), missing[0])
            else:
                await _gather_all(self._request(Step.SOLVE, 1, index) for index in missing)
        with use_memo(self.memo):
            await self._score_by_surrogate()

    def used(self, item: Item) -> Needs:
        """Return the requests and tokens of this run, by provider."""
        return used_amounts(self._calls, item.needs, self.odar.settings.retry.attempts)

    def cost(self) -> float | None:
        """Return the cost of the item so far, in all runs; None if a price is unknown."""
        return sum_costs([total_cost(self.attempts), *self._failed_costs])

    def _attempts_at(self, step: Step) -> list[Attempt]:
        return [each for each in self.attempts if each.step is step]

    async def _request(self, step: Step, count: int, index: int) -> None:
        """Make one request on a ledger of its own, and keep its answers."""
        ledger = self.odar.ledger()
        team = self.odar.team(self.job.task.query, ledger, self.job.seed, self.assignment)
        candidates: list[Candidate] = []
        try:
            if step is Step.ANSWER:
                candidates = await team.answer()
            elif step is Step.VERIFY:
                candidates = await team.verify(self._attempts_at(Step.ANSWER)[0].candidate)
            else:
                candidates = await team.solve(count, first=index)
        finally:
            self._calls += ledger.calls
            if not candidates:
                self._failed_costs.append(ledger.spend().cost_usd)
        if not candidates:
            raise team.failures[-1].error
        spend, number = ledger.spend(), list(Step).index(step) + index
        price = team.cards[step.role].price
        attempts = attempts_of(candidates, index, number, spend.usage, price, spend.seconds)
        await write_in_thread(self.memo.keep, f"{step.value}:{index}", list(map(attempt_to_json, attempts)))
        self.attempts += attempts

    async def _score_by_surrogate(self) -> None:
        """Score all answers by the surrogate if the Medium or the Hard path would use it (SPEC 5.6).

        Raises:
            OdarError: the surrogate failed; the next run tries the item again.
        """
        surrogate = self.odar.judge.surrogate
        if surrogate is None:
            return
        ledger = self.odar.ledger()
        team = self.odar.team(self.job.task.query, ledger, self.job.seed, self.assignment)
        self.attempts = sort_attempts(self.attempts)
        candidates = [each.candidate for each in self.attempts]
        by_step = {step: [each for each in candidates if each.step is step] for step in Step}
        paths = (by_step[Step.ANSWER] + by_step[slow] for slow in (Step.VERIFY, Step.SOLVE))
        if not any(surrogate.is_needed(path, team) for path in paths):
            return
        try:
            scored = await surrogate.score(candidates, team)
        except OdarError:
            self._failed_costs.append(ledger.spend().cost_usd)
            raise
        finally:
            self._calls += ledger.calls
        cost = ledger.spend().cost_usd
        share = None if cost is None else cost / len(candidates)
        for i, view in enumerate(scored):
            if (energy := view.energy) is not None:
                score = SurrogateScore(surrogate.card.name, energy.energy, energy.varentropy, share)
                self.attempts[i] = replace(self.attempts[i], surrogate=score)


def score_item(odar: Odar, job: Job, assignment: Assignment, attempts: Sequence[Attempt]) -> RecordedItem:
    """Score the attempts and return the finished item."""
    task, score = job.task, job.source.score
    estimate = estimate_turn(odar.estimator, task.query)
    return RecordedItem(
        key=job.key,
        category=job.source.category,
        metric=job.source.metric,
        stratum=task.stratum,
        fold=job.fold,
        query=task.query.text,
        gold=task.gold,
        effort=task.effort,
        features=features_of(estimate) or tuple(phi(task.query).tolist()),
        difficulty=estimate.difficulty,
        expert=assignment.expert,
        attempts=tuple(replace(a, score=float(score(task, a.text, a.answer))) for a in sort_attempts(attempts)),
        split=task.split,
    )


async def _gather_all(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait for every call, so that all answers are kept, then raise the first failure."""
    for result in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
