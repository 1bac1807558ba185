"""Run both agents on every item once, request by request, and keep each answer as soon as it is paid for.

Resumable to the request: what the journal holds is never asked again. Bounded in concurrency and in money.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from odar.agents.team import Team
from odar.calibration.collect import worst_cost
from odar.calibration.items import Item
from odar.difficulty.features import FEATURES, phi
from odar.difficulty.sticky import estimate_turn
from odar.engine import Odar
from odar.errors import BudgetExceeded, OdarError
from odar.evals.benchmarks.base import Benchmark, Task
from odar.evals.panel.entry import Attempt, Bill, Entry, Key, attempt, in_order, shares
from odar.evals.panel.folder import PanelFolder
from odar.evals.panel.journal import bill
from odar.types import Assignment, Candidate, Step


@dataclass(frozen=True, slots=True)
class Job:
    """One item to collect."""

    benchmark: Benchmark
    task: Task
    fold: int
    seed: int

    @property
    def key(self) -> Key:
        """Its name in the panel."""
        return Key(self.benchmark.name, self.task.id, self.seed)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a collection is."""

    done: int
    total: int
    failed: int
    spent_usd: float | None
    """All that is in the panel, earlier runs included; None where a price is unknown."""
    to_go_usd: float | None
    """What the rest will cost at the mean of this run so far; None before there is one."""


class Collection:
    """A panel being collected.

    Args:
        odar: the engine whose agents are asked.
        folder: where their answers go.
        jobs: every item that the panel is to hold.
        budget_usd: stop before the panel as a whole has cost more, earlier runs included.
    """

    def __init__(
        self, odar: Odar, folder: PanelFolder, jobs: Sequence[Job], budget_usd: float | None = None
    ) -> None:
        self.odar = odar
        self.folder = folder
        self.jobs = jobs
        self.samples = odar.settings.routing.samples
        self.budget_usd = budget_usd
        self.failures: list[tuple[Key, OdarError]] = []
        self._spent = folder.spent()
        self._begun_with = self._spent
        self._held = 0.0
        self._scoring = asyncio.Lock()  # scorers need not be thread-safe
        self._begun_at = len(jobs) - len(self.missing())
        self._new = 0

    def missing(self) -> list[Job]:
        """The items that are not finished."""
        finished = self.folder.finished
        return [job for job in self.jobs if job.key not in finished]

    def worst_cost(self, jobs: Sequence[Job]) -> float | None:
        """The most that these items can cost from scratch; None where a price is unknown."""
        return worst_cost(self.odar, [Item(job.task.id, job.task.query, ()) for job in jobs])

    async def run(self, *, concurrency: int = 4, on_progress: Callable[[Progress], None] = lambda _: None) -> None:
        """Answer every item that is not finished. A failed one is tried again by the next run."""
        slots = asyncio.Semaphore(concurrency)

        async def one(job: Job) -> None:
            async with slots:
                try:
                    await self._within_budget(job)
                except OdarError as error:
                    self.failures.append((job.key, error))
                on_progress(self.progress())

        tasks = [asyncio.create_task(one(job)) for job in self.missing()]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def progress(self) -> Progress:
        """How far it is."""
        done = self._begun_at + self._new
        to_go = None
        if self._spent is not None and self._begun_with is not None and self._new:
            to_go = (len(self.jobs) - done) * (self._spent - self._begun_with) / self._new
        return Progress(done, len(self.jobs), len(self.failures), self._spent, to_go)

    async def _within_budget(self, job: Job) -> None:
        """Answer an item if the most it can cost is still there; that much is held back until it is done."""
        held = 0.0
        if self.budget_usd is not None:
            worst = self.worst_cost([job])
            if worst is None or self._spent is None:
                raise BudgetExceeded("the budget cannot be kept while a price is unknown; add it to odar.toml")
            if self._spent + self._held + worst > self.budget_usd:
                raise BudgetExceeded(f"the budget of ${self.budget_usd:g} does not cover {job.key.id}")
            held = worst
        self._held += held
        before = bill(self.folder.attempts(job.key))
        try:
            await self._collect(job)
            self._new += 1
        finally:
            self._held -= held
            after = bill(self.folder.attempts(job.key))
            if self._spent is not None:
                self._spent = None if before is None or after is None else self._spent + after - before

    async def _collect(self, job: Job) -> None:
        query = job.task.query
        assignment = self.odar.dispatcher.assign(query)
        attempts = self.folder.attempts(job.key)

        def have(step: Step) -> list[Attempt]:
            return [each for each in attempts if each.step is step]

        async def ask(step: Step, count: int, index: int) -> None:
            proposal = have(Step.ANSWER)[0].candidate if step is Step.VERIFY else None
            found = await self._ask(job, assignment, step, proposal, count, index)
            self.folder.journal.add(job.key, found)
            attempts.extend(found)

        for step in (Step.ANSWER, Step.VERIFY):
            if not have(step):
                await ask(step, 1, 0)
        together = self.odar.settings.card(assignment.slow).n
        while missing := sorted(set(range(self.samples)) - {each.index for each in have(Step.SOLVE)}):
            if together and missing == list(range(missing[0], self.samples)):
                await ask(Step.SOLVE, len(missing), missing[0])
            else:
                await _all(ask(Step.SOLVE, 1, index) for index in missing)
        async with self._scoring:
            scored = await asyncio.to_thread(self._scored, job, attempts)
        self.folder.journal.finish(self._entry(job, assignment, scored))

    async def _ask(
        self, job: Job, assignment: Assignment, step: Step, proposal: Candidate | None, count: int, index: int
    ) -> list[Attempt]:
        """One request on a bill of its own."""
        ledger = self.odar.ledger()
        team = self.odar.team(job.task.query, ledger, job.seed, assignment)
        match step:
            case Step.ANSWER:
                candidates = await team.answer()
            case Step.VERIFY:
                assert proposal is not None
                candidates = await team.verify(proposal)
            case Step.SOLVE:
                candidates = await team.solve(count, first=index)
        if not candidates:
            raise _failure(team)
        spend = ledger.spend()
        card = team.cards[step.role]
        paid = Bill(list(Step).index(step) + index, spend.usage, card.price, spend.seconds)
        parts = shares(spend.usage.output, candidates)
        pairs = enumerate(zip(candidates, parts, strict=True))
        return [attempt(each, index + i, None, paid, part) for i, (each, part) in pairs]

    def _scored(self, job: Job, attempts: Sequence[Attempt]) -> tuple[Attempt, ...]:
        """The attempts by the benchmark's metric, which may take its time: what is paid for is on the disk."""
        score = job.benchmark.score
        return tuple(replace(a, score=float(score(job.task, a.text, a.answer))) for a in in_order(attempts))

    def _entry(self, job: Job, assignment: Assignment, attempts: tuple[Attempt, ...]) -> Entry:
        task = job.task
        estimate = estimate_turn(self.odar.estimator, task.query)
        values = {name: value for name, value, _ in estimate.contributions}
        known = all(name in values for name in FEATURES)
        features = [values[name] for name in FEATURES] if known else phi(task.query).tolist()
        return Entry(
            key=job.key,
            category=job.benchmark.category,
            metric=job.benchmark.metric,
            stratum=task.stratum,
            fold=job.fold,
            query=task.query.text,
            gold=task.gold,
            effort=task.effort,
            features=tuple(features),
            difficulty=estimate.difficulty,
            expert=assignment.expert,
            attempts=attempts,
        )


def _failure(team: Team) -> OdarError:
    return team.failures[-1].error


async def _all(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Every call to its end, then the first failure: what others have paid for is kept."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
