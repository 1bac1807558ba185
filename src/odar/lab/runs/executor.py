"""Run the items of a journal: each is done and paid for once, within rate limits and budget.

    items = [WorkItem("1", payload, digest="…", needs={("openai", "requests"): 6}, worst_cost_usd=0.02), …]
    with Journal(Path("out.jsonl")) as journal:
        done = await run(items, open_work, journal, rates=rates, concurrency=8, budget_usd=5)

`open_work` is a function without arguments that returns an async context manager; entering it gives the work, an
async function from an item and a memo to a result. `cluster.on_ray` makes one that does the work on Ray, where
`open_work`, payloads and results must be picklable. The work returns a failure as a row with an `error`; an
exception is a bug, and stops the run. Values that it passes to `memo.keep` are returned by `memo.recall` if the
item has to be done again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from odar.errors import BudgetExceeded, OdarError, ProviderError, one_line
from odar.lab.runs.journal import Journal, Memo, Row, RowInfo, WorkItem, write_in_thread
from odar.lab.runs.limits import Amounts, RateLimiter
from odar.traces.story import dollars


@dataclass(frozen=True, slots=True)
class WorkResult:
    """The result of an item."""

    row: Row
    """Plain data. `id`, the item's key, comes first; `digest` is the item's; `error` is None if the item succeeded,
    `cost_usd` if it is unknown."""
    used: Amounts = field(default_factory=dict)
    """What it took from providers."""
    lost: int = 0
    """Number of workers that were lost while they did the item: each may have paid for calls of unknown cost."""


Work = Callable[[WorkItem, Memo], Awaitable[WorkResult]]
OpenWork = Callable[[], AbstractAsyncContextManager[Work]]


def failure(item: WorkItem, error: OdarError, used: Amounts | None = None, **more: Any) -> WorkResult:
    """The result of an item that failed.

    `more` are further fields of the row, `cost_usd` among them. Without `used`, the item counts with its maximum.
    """
    description: dict[str, Any] = {"type": type(error).__name__, "message": one_line(error)}
    if isinstance(error, ProviderError):
        description |= {"provider": error.provider, "status": error.status, "retryable": error.retryable}
    row = {"id": item.key, **more, "error": description, "digest": item.digest}
    return WorkResult(row, item.needs if used is None else used)


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a run; rows of earlier runs count."""

    total: int
    done: int = 0
    """Items with a row, failed ones included."""
    failed: int = 0
    cost_usd: float | None = 0.0
    """Cost of all rows; None if one of them is unknown."""
    asked: int = 0
    """Items done in this run."""
    stopped: str | None = None
    """The reason why the run stopped early; None if it did not."""

    def plus(self, row: RowInfo) -> Progress:
        cost = None if self.cost_usd is None or row.cost_usd is None else self.cost_usd + row.cost_usd
        return replace(self, done=self.done + 1, failed=self.failed + row.failed, cost_usd=cost)

    @property
    def cost_to_go_usd(self) -> float | None:
        """Estimated cost of the remaining items; None if unknown."""
        remaining = self.total - self.done
        if self.cost_usd is None or (remaining and not self.done):
            return None
        return self.cost_usd / self.done * remaining if remaining else 0.0


async def run(
    items: Sequence[WorkItem],
    open_work: OpenWork,
    journal: Journal,
    *,
    rates: Amounts | None = None,
    concurrency: int = 8,
    budget_usd: float | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Do every item that has no row yet, or one with an error, and sort the rows in the order of the items.

    The budget covers all rows of the journal. The run stops before the budget is exceeded, with the reason in
    `stopped`. If it is interrupted, finished rows and the replies of unfinished items are on disk, and the next run
    continues there. The work is opened only if an item has to be done.

    Raises:
        BudgetExceeded: there is a budget, and the price of an item, or of another row, is unknown.
        InputError: the journal holds rows of other items under the same ids.
    """
    todo = journal.missing(items)
    if budget_usd is not None and any(item.worst_cost_usd is None for item in todo):
        raise BudgetExceeded("the budget cannot be kept while a price is unknown; add it to odar.toml")
    state = _RunState(journal, RateLimiter(rates or {}), budget_usd, on_progress, Progress(len(items)))
    max_costs = {item.key: item.worst_cost_usd or 0.0 for item in items}
    for key, row in journal.entries.items():
        if key in max_costs and not row.failed:
            state.progress = state.progress.plus(row)
        elif key not in max_costs and row.cost_usd is None and budget_usd is not None:
            raise BudgetExceeded("the budget cannot be kept: the cost of earlier runs is unknown")
        # failed attempts have cost something too
        state.committed_usd += max_costs.get(key, 0.0) if row.cost_usd is None else row.cost_usd
    stopped = None
    if todo:
        async with open_work() as work:
            stopped = await state.do_all(work, todo, concurrency)
    journal.sort(items)
    rows = [journal.entries[item.key] for item in items if item.key in journal.entries]
    return reduce(Progress.plus, rows, Progress(len(items), asked=state.progress.asked, stopped=stopped))


@dataclass(slots=True)
class _RunState:
    """The state of a run: what is done, and what may have been spent."""

    journal: Journal
    limiter: RateLimiter
    budget_usd: float | None
    on_progress: Callable[[Progress], None]
    progress: Progress
    """Without failed rows of earlier runs, which are tried again."""
    committed_usd: float = 0.0
    """Finished items of known cost count with it, all others with their maximum cost."""

    async def do_all(self, work: Work, todo: Sequence[WorkItem], concurrency: int) -> str | None:
        """Do the items, `concurrency` at a time; return the reason if the run stops early."""

        def fits(item: WorkItem) -> bool:
            total = self.committed_usd + (item.worst_cost_usd or 0.0)
            return self.budget_usd is None or total <= self.budget_usd + 1e-12

        running: set[asyncio.Task[None]] = set()
        try:
            for item in todo:
                while len(running) >= concurrency or (running and not fits(item)):
                    running = await _wait_for_one(running)
                if not fits(item):
                    return (
                        f"the budget of ${self.budget_usd:g} does not cover the next question, which can cost "
                        f"{dollars(item.worst_cost_usd or 0.0)} ({dollars(self.committed_usd)} is spent); "
                        "raise the budget, or lower max_tokens"
                    )
                self.committed_usd += item.worst_cost_usd or 0.0
                ticket = await self.limiter.acquire(item.needs)
                running.add(asyncio.create_task(self._do(work, item, ticket)))
            while running:
                running = await _wait_for_one(running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return None

    async def _do(self, work: Work, item: WorkItem, ticket: int) -> None:
        used = item.needs
        try:
            result = await work(item, self.journal.memo(item))
            used = result.used
            await write_in_thread(self.journal.write, result.row)
        finally:
            self.limiter.settle(ticket, used)
        row = self.journal.entries[item.key]
        worst = item.worst_cost_usd or 0.0
        self.committed_usd += result.lost * worst
        if row.cost_usd is not None:
            self.committed_usd += row.cost_usd - worst
        self.progress = replace(self.progress.plus(row), asked=self.progress.asked + 1)
        self.on_progress(self.progress)


async def _wait_for_one(running: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    """The tasks that have not ended; raises the exception of one that has."""
    done, rest = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    return rest
