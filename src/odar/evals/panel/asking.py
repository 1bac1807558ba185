"""What is done with one item of a panel: both agents, request by request, each answer kept as soon as it is there.

Resumable to the request: what the item's memo holds is never asked again, and keeps the time it took.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any

from odar.batch.bounds import used
from odar.batch.executor import Item, Outcome, Work, failure
from odar.batch.journal import Memo
from odar.difficulty.features import FEATURES, phi
from odar.difficulty.sticky import estimate_turn
from odar.engine import Odar
from odar.errors import OdarError
from odar.evals.panel.collect import Job
from odar.evals.panel.entry import (
    Attempt,
    Bill,
    Entry,
    attempt,
    attempt_from_json,
    attempt_to_json,
    bill,
    in_order,
    row_of,
    shares,
)
from odar.types import Assignment, Call, Candidate, Step


def asking(odar: Odar) -> Work:
    """The work with one engine; a function of this module, so that it can be sent to another machine."""
    finishing = asyncio.Lock()  # scorers and parsers need not be thread-safe

    async def work(item: Item, memo: Memo) -> Outcome:
        job: Job = item.payload
        asked = Asked(odar, job, memo)
        try:
            await asked.everything()
            async with finishing:
                # In a thread: the first item loads a parser, which takes seconds on a busy machine, and what other
                # items pay for meanwhile has to leave this process.
                entry = await asyncio.to_thread(finished, odar, job, asked.assignment, asked.attempts)
        except OdarError as error:
            return failure(item, error, asked.used(item), cost_usd=asked.cost())
        told = {"cost_usd": bill(entry.attempts), "error": None, "digest": item.digest}
        return Outcome({"id": item.key, **told, **row_of(entry)}, asked.used(item))

    return work


class Asked:
    """One item: what has been answered, and what that took."""

    def __init__(self, odar: Odar, job: Job, memo: Memo) -> None:
        self.odar = odar
        self.job = job
        self.memo = memo
        self.assignment = odar.dispatcher.assign(job.task.query)
        self.attempts = [attempt_from_json(row) for kept in memo.known.values() for row in kept]
        self._calls: list[Call] = []
        self._lost: list[float | None] = []
        """What requests have cost that gave no answer."""

    async def everything(self) -> None:
        """The fast answer, its verification, the slow samples: those that are not there yet."""
        for step in (Step.ANSWER, Step.VERIFY):
            if not self._have(step):
                await self._ask(step, 1, 0)
        samples, together = self.odar.settings.routing.samples, self.odar.settings.card(self.assignment.slow).n
        while missing := sorted(set(range(samples)) - {each.index for each in self._have(Step.SOLVE)}):
            if together and missing == list(range(missing[0], samples)):
                await self._ask(Step.SOLVE, len(missing), missing[0])
            else:
                await _all(self._ask(Step.SOLVE, 1, index) for index in missing)

    def used(self, item: Item) -> dict[str, Any]:
        """Requests and tokens by provider, of this run."""
        return dict(used(self._calls, item.needs, self.odar.settings.retry.attempts))

    def cost(self) -> float | None:
        """What the item has cost so far, in all runs; None where a price, or the fate of a request, is unknown."""
        costs = [bill(self.attempts), *self._lost]
        return None if None in costs else sum(cost for cost in costs if cost is not None)

    def _have(self, step: Step) -> list[Attempt]:
        return [each for each in self.attempts if each.step is step]

    async def _ask(self, step: Step, count: int, index: int) -> None:
        """One request on a bill of its own; its answers are kept before anything else happens."""
        ledger = self.odar.ledger()
        team = self.odar.team(self.job.task.query, ledger, self.job.seed, self.assignment)
        candidates: list[Candidate] = []
        try:
            match step:
                case Step.ANSWER:
                    candidates = await team.answer()
                case Step.VERIFY:
                    candidates = await team.verify(self._have(Step.ANSWER)[0].candidate)
                case Step.SOLVE:
                    candidates = await team.solve(count, first=index)
        finally:
            self._calls += ledger.calls
            if not candidates:
                self._lost.append(ledger.spend().cost_usd)
        if not candidates:
            raise team.failures[-1].error
        spend = ledger.spend()
        paid = Bill(list(Step).index(step) + index, spend.usage, team.cards[step.role].price, spend.seconds)
        parts = shares(spend.usage.output, candidates)
        found = [
            attempt(each, index + i, None, paid, part)
            for i, (each, part) in enumerate(zip(candidates, parts, strict=True))
        ]
        self.memo.keep(f"{step.value}:{index}", [attempt_to_json(each) for each in found])
        self.attempts += found


def score(job: Job, attempts: Sequence[Attempt]) -> tuple[Attempt, ...]:
    """The attempts by the benchmark's metric, which may take its time: what is paid for is kept by now."""
    by = job.benchmark.score
    return tuple(replace(a, score=float(by(job.task, a.text, a.answer))) for a in in_order(attempts))


def finished(odar: Odar, job: Job, assignment: Assignment, attempts: Sequence[Attempt]) -> Entry:
    """The finished item, its attempts scored."""
    task = job.task
    estimate = estimate_turn(odar.estimator, task.query)
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
        attempts=score(job, attempts),
    )


async def _all(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Every call to its end, then the first failure: what others have paid for is kept."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
