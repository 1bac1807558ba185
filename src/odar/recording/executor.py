"""Items → an engine → the journal: each item done once and paid once, within the rate limits and the budget.

    items = [Item("1", payload, digest="…", needs={"openai": Amount(6, 9000)}, worst_cost_usd=0.02), …]
    with Journal(Path("out.jsonl")) as journal:
        done = await run(items, lambda: LocalExecutor(open_work, rates), journal, concurrency=8, budget_usd=5)

`open_work` is a function without arguments that returns an async context manager over the work itself, an async
function from an item and a memo to an outcome. It opens what the work needs (an engine, connections) once in each
worker process. So that it can be sent to another machine it must be picklable, and so must payloads and outcomes.
The work catches what may go wrong with one item and returns it as a row with an `error`; what it raises is a bug,
and stops the run. What it hands to `memo.keep` it finds again by `memo.recall`, should the item have to be done
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from odar.errors import BudgetExceeded, OdarError, ProviderError, one_line
from odar.recording.journal import Item as Item
from odar.recording.journal import Journal, Memo, Row, RowInfo, save
from odar.recording.limits import LEASE_S, Limiter, LocalLimiter, Needs, Rate


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an item."""

    row: Row
    """JSON-ready. `id` comes first and is the item's key, `digest` is the item's; `error` is None where all went
    well, `cost_usd` where it is unknown."""
    used: Needs = field(default_factory=dict)


def failure(item: Item, error: OdarError, used: Needs | None = None, **more: Any) -> Outcome:
    """An item that failed: its row says why. Give its `cost_usd`; unless told, it may have used all it needed."""
    told: dict[str, Any] = {"type": type(error).__name__, "message": one_line(error)}
    if isinstance(error, ProviderError):
        told |= {"provider": error.provider, "status": error.status, "retryable": error.retryable}
    row = {"id": item.key, **more, "error": told, "digest": item.digest}
    return Outcome(row, item.needs if used is None else used)


Work = Callable[[Item, Memo], Awaitable[Outcome]]
OpenWork = Callable[[], AbstractAsyncContextManager[Work]]


class Executor(Protocol):
    """Where the work is done."""

    @property
    def limiter(self) -> Limiter:
        """Says when an item may start."""
        ...

    @property
    def again(self) -> int:
        """How often an item was begun again because its worker was lost; what it had under way then may be paid for
        twice."""
        ...

    @property
    def again_usd(self) -> float | None:
        """What that may have cost, at the most, and is in no row; None where a price is unknown."""
        ...

    async def do(self, item: Item, memo: Memo) -> Outcome:
        """Do one item; called for several at once."""
        ...


class LocalExecutor:
    """Does the work in this process, in this event loop."""

    again, again_usd = 0, 0.0
    """There is no worker that could be lost."""

    def __init__(
        self, open_work: OpenWork, rates: Mapping[str, Rate] | None = None, lease_s: float = LEASE_S
    ) -> None:
        self.limiter: Limiter = LocalLimiter(rates or {}, lease_s)
        self._opened = open_work()
        self._work: Work | None = None

    async def do(self, item: Item, memo: Memo) -> Outcome:
        """Do one item."""
        assert self._work is not None, "use it as an async context manager"
        return await self._work(item, memo)

    async def __aenter__(self) -> Self:
        self._work = await self._opened.__aenter__()
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self._opened.__aexit__(*exception)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is; rows of earlier runs count."""

    total: int
    done: int
    """Items with a row, failed ones included."""
    failed: int
    cost_usd: float | None
    """What all rows cost; None where one of them is unknown."""
    asked: int = 0
    """Items done in this run."""
    stopped: str | None = None
    """Why items are left over, if they are."""
    again: int = 0
    """How often an item of this run was begun again because its worker was lost (see `Executor.again`)."""
    again_usd: float | None = 0.0
    """What was lost with them may have cost, at the most; `cost_usd` does not hold it."""

    @property
    def cost_to_go_usd(self) -> float | None:
        """What the rest will cost if it is like the part that is done; None if that is unknown."""
        if self.cost_usd is None or (self.done == 0 and self.total):
            return None
        return self.cost_usd / self.done * (self.total - self.done) if self.done else 0.0


async def run(
    items: Sequence[Item],
    open_executor: Callable[[], AbstractAsyncContextManager[Executor]],
    journal: Journal,
    *,
    concurrency: int = 8,
    budget_usd: float | None = None,
    spent_usd: float = 0.0,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Do every item that has no row yet, and put the rows in the order of the items.

    The budget is for all rows of the items, and for what was spent on others (`spent_usd`).

    Interrupted, it leaves the rows that are finished and what the others have paid for; the next run goes on from
    there. It stops before the budget is passed, and says so in `stopped`. An executor is opened only if there is
    something to do.

    Raises:
        BudgetExceeded: there is a budget, and it is unknown what an item may cost.
        InputError: the journal holds rows of other items under the same ids.
    """
    todo, state, stopped = (
        journal.missing(items),
        _RunState(journal, len(items), budget_usd, spent_usd, on_progress),
        None,
    )
    if todo and budget_usd is not None and any(item.worst_cost_usd is None for item in todo):
        raise BudgetExceeded("the budget cannot be kept while a price is unknown; add it to odar.toml")
    for item in items:
        if (entry := journal.entries.get(item.key)) is not None:  # failed attempts have cost something too
            state.count(entry)
            state.committed_usd += (item.worst_cost_usd or 0.0) if entry.cost_usd is None else entry.cost_usd
    if todo:
        async with open_executor() as executor:
            stopped = await state.do_all(executor, todo, concurrency)
    journal.put_in_order(items)
    return state.progress(stopped)


@dataclass(slots=True)
class _RunState:
    """One run under way: sums over the rows, and the money that is committed.

    Of an item under way the most that it can cost is committed, of a finished one what it did cost; where that is
    unknown, it may have been the most.
    """

    journal: Journal
    total: int
    budget_usd: float | None
    committed_usd: float
    on_progress: Callable[[Progress], None]
    done: int = 0
    failed: int = 0
    asked: int = 0
    again: int = 0
    again_usd: float | None = 0.0
    known_usd: float = 0.0
    unknown: int = 0
    """Rows of unknown cost."""

    def count(self, entry: RowInfo, sign: int = 1) -> None:
        """Count a row; with a sign of −1, no longer."""
        self.done += sign
        self.failed += sign * entry.failed
        self.known_usd += sign * (entry.cost_usd or 0.0)
        self.unknown += sign * (entry.cost_usd is None)

    def progress(self, stopped: str | None = None) -> Progress:
        """How far the run is."""
        cost = None if self.unknown else self.known_usd
        return Progress(self.total, self.done, self.failed, cost, self.asked, stopped, self.again, self.again_usd)

    async def do_all(self, executor: Executor, todo: Sequence[Item], concurrency: int) -> str | None:
        """Do the items, so many at a time; return why it stopped before the end, if it did."""

        def fits(item: Item) -> bool:
            # Requests that were lost with their workers are in no row, and perhaps billed.
            most = self.committed_usd + (executor.again_usd or 0.0) + (item.worst_cost_usd or 0.0)
            return self.budget_usd is None or most <= self.budget_usd + 1e-12

        running: set[asyncio.Task[None]] = set()
        try:
            for item in todo:
                while len(running) >= concurrency or (running and not fits(item)):
                    running = await _after_the_next(running)
                if not fits(item):
                    return f"the budget of ${self.budget_usd:g} does not cover what {item.key!r} may cost"
                self.committed_usd += item.worst_cost_usd or 0.0
                ticket = await executor.limiter.take(item.needs)
                running.add(asyncio.create_task(self._one(executor, item, ticket)))
            while running:
                running = await _after_the_next(running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return None

    async def _one(self, executor: Executor, item: Item, ticket: int) -> None:
        before, used = self.journal.entries.get(item.key), item.needs
        try:
            outcome = await executor.do(item, self.journal.memo(item))
            used = outcome.used
            await save(self.journal.write, outcome.row)
        finally:
            await executor.limiter.settle(ticket, used)
        after = self.journal.entries[item.key]
        if before is not None:
            self.count(before, -1)
        self.count(after)
        self.asked += 1
        self.again, self.again_usd = executor.again, executor.again_usd
        if after.cost_usd is not None:
            self.committed_usd += after.cost_usd - (item.worst_cost_usd or 0.0)
        self.on_progress(self.progress())


async def _after_the_next(running: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    """Those that are still running when one of them has ended; raises what it raised."""
    done, rest = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    return rest
