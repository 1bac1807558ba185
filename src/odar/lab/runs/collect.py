"""Collecting a recording: all agents answer every item, and each answer is on disk as soon as it arrives.

A run can be resumed after any request: an answer that the journal holds is not requested again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from odar.difficulty.base import estimate_turn
from odar.difficulty.features import phi
from odar.engine import Odar
from odar.errors import OdarError
from odar.lab.recording.header import digest_json
from odar.lab.recording.schema import (
    Attempt,
    ItemKey,
    RecordedItem,
    Task,
    TaskSet,
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
from odar.lab.runs.executor import Work, WorkResult, failure
from odar.lab.runs.journal import Memo, WorkItem, write_in_thread
from odar.lab.runs.limits import Amounts, used_amounts, worst_case
from odar.providers.base import Provider
from odar.settings import Settings
from odar.types import SLOW, Ask, Call, Candidate, Query, Stage


@dataclass(frozen=True, slots=True)
class Job:
    """A question of a set that is to be recorded with a seed: the payload of a work item."""

    task_set: TaskSet
    task: Task
    fold: int
    seed: int
    asks: tuple[Ask, ...] = ()
    """The requests; if empty, `make_items` puts those of `recorded_asks` here."""

    @property
    def key(self) -> ItemKey:
        return ItemKey(self.task_set.name, self.task.id, self.seed)


def recorded_asks(settings: Settings) -> list[Ask]:
    """Every agent once, a verification, and samples of the slow agent."""
    samples = Ask(SLOW, settings.routing.samples)
    asks = [samples if name == SLOW else Ask(name) for name in settings.agent_names]
    asks.insert(asks.index(samples), Ask(SLOW, verify=True))
    return asks


def make_items(odar: Odar, jobs: Iterable[Job]) -> list[WorkItem]:
    """The work item of each job, with the most that it can take and cost."""
    usual = tuple(recorded_asks(odar.settings))
    items = []
    for job in jobs:
        job = replace(job, asks=job.asks or usual)
        task = job.task
        digest = digest_json([task.query, task.gold, task.split, *_open_prompts(odar, task.query)])
        items.append(WorkItem(row_id(job.key), job, digest, *worst_case(odar, task.query, job.asks)))
    return items


def _open_prompts(odar: Odar, query: Query) -> list[Any]:
    """What the answers to an open-ended request depend on besides the header, which is about exact questions."""
    prompts = odar.agents.prompts
    if not prompts.is_open_ended(query):
        return []
    return [[each.md5 for each in prompts.choose(open_ended=True).values()], odar.settings.limits.max_tokens]


@asynccontextmanager
async def open_collect_work(
    settings: Settings, open_providers: Callable[[Settings], Mapping[str, Provider]] | None = None
) -> AsyncIterator[Work]:
    """Open an engine to collect with. A `partial` of this can be sent to another machine, which needs its own keys.

    `open_providers` opens providers to use in place of the configured ones.
    """
    providers = open_providers(settings) if open_providers else None
    async with Odar(settings, providers=providers) as odar:
        yield collect_work(odar)


def collect_work(odar: Odar) -> Work:
    """Ask what is missing of an item, score the answers, and make its row."""
    scoring = asyncio.Lock()  # graders and parsers need not be thread-safe

    async def collect_item(item: WorkItem, memo: Memo) -> WorkResult:
        calls = ItemCalls(odar, item, memo)
        try:
            await calls.run()
            async with scoring:
                # In a thread: the first item loads a parser, which takes seconds on a busy machine, and replies to
                # other items must be sent in the meantime.
                recorded = await asyncio.to_thread(calls.scored)
        except OdarError as error:
            return failure(item, error, calls.used(), cost_usd=calls.cost())
        return WorkResult(item_to_json(recorded), calls.used())

    return collect_item


class ItemCalls:
    """The requests for one item, their answers and their cost."""

    def __init__(self, odar: Odar, item: WorkItem, memo: Memo) -> None:
        self.odar = odar
        self.item = item
        self.job: Job = item.payload
        self.memo = memo
        self.assignment = odar.planner.assign(self.job.task.query)
        self.attempts = [attempt_from_json(row) for rows in memo.known.values() for row in rows]
        self._calls: list[Call] = []
        self._failed_costs: list[float | None] = []
        """Cost of requests that gave no answer."""

    async def run(self) -> None:
        """Make the requests whose answers are not on disk; they are numbered in the order of the job's asks."""
        number = 0
        for ask in self.job.asks:
            one_request = self.odar.settings.card(self.assignment.models[ask.agent]).n
            while missing := sorted(set(range(ask.samples)) - {each.index for each in self._attempts_of(ask)}):
                if one_request and missing == list(range(missing[0], ask.samples)):
                    await self._request(ask._replace(samples=len(missing)), missing[0], number + missing[0])
                    continue
                single = ask._replace(samples=1)
                requests = [self._request(single, index, number + index) for index in missing]
                for result in await asyncio.gather(*requests, return_exceptions=True):
                    if isinstance(result, BaseException):  # once all answers are kept
                        raise result
            number += ask.samples

    def used(self) -> Amounts:
        """Requests and tokens of this run."""
        return used_amounts(self._calls, self.item.needs)

    def cost(self) -> float | None:
        """Dollars of the item in all runs; None if a price is unknown."""
        return sum_costs([total_cost(self.attempts), *self._failed_costs])

    def scored(self) -> RecordedItem:
        """The recorded item, with a score for each answer."""
        task = self.job.task
        task_set = self.job.task_set
        estimate = estimate_turn(self.odar.estimator, task.query)
        return RecordedItem(
            key=self.job.key,
            category=task_set.category,
            metric=task_set.metric,
            stratum=task.stratum,
            fold=self.job.fold,
            query=task.query.text,
            gold=task.gold,
            effort=task.effort,
            features=features_of(estimate) or tuple(phi(task.query)),
            difficulty=estimate.difficulty,
            expert=self.assignment.expert,
            attempts=tuple(
                replace(each, score=float(task_set.score(task, each.text, each.answer)))
                for each in sort_attempts(self.attempts)
            ),
            split=task.split,
            digest=self.item.digest,
        )

    def _attempts_of(self, ask: Ask) -> list[Attempt]:
        return [each for each in self.attempts if each.agent == ask.agent and each.step is ask.step]

    async def _request(self, ask: Ask, index: int, number: int) -> None:
        """Ask on a ledger of its own, and keep the answers on disk; they are numbered from `index`."""
        ledger = self.odar.agents.ledger()
        team = self.odar.agents.team(self.job.task.query, ledger, self.job.seed, self.assignment.models)
        team.skip_samples(ask.agent, index)
        proposal = self._attempts_of(self.job.asks[0])[0] if ask.verify else None
        candidates: list[Candidate] = []
        # ask; what a request without an answer costs is counted too
        try:
            candidates = await team.ask(Stage((ask,)), proposal)
        finally:
            self._calls += ledger.calls
            if not candidates:
                self._failed_costs.append(ledger.spend().cost_usd)
        if not candidates:
            raise team.failures[-1][1]
        # keep the answers
        spend = ledger.spend()
        price = team.cards[ask.agent].price
        attempts = attempts_of(candidates, index, number, spend.usage, price, spend.seconds)
        rows = list(map(attempt_to_json, attempts))
        await write_in_thread(self.memo.keep, f"{ask.agent}:{ask.step.value}:{index}", rows)
        self.attempts += attempts
