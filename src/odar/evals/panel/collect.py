"""The items of a panel that are still to be asked, and how far that is. What is done with each: `asking`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

from odar.batch.bounds import worst_case
from odar.batch.executor import Executor, Item, Progress, run
from odar.batch.journal import digest_of
from odar.engine import Odar
from odar.errors import BudgetExceeded
from odar.evals.benchmarks.base import Benchmark, Task
from odar.evals.panel.entry import Key, row_id
from odar.evals.panel.folder import PanelFolder
from odar.types import Step


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


def make_items(odar: Odar, jobs: Iterable[Job]) -> list[Item]:
    """The jobs as the executor knows them: each with what it may take and cost at the most."""
    steps = ((Step.ANSWER, 1), (Step.VERIFY, 1), (Step.SOLVE, odar.settings.routing.samples))
    return [
        Item(
            row_id(job.key),
            job,
            digest_of(job.task.query, job.task.gold),
            *worst_case(odar, job.task.query, steps),
        )
        for job in jobs
    ]


class Collection:
    """A panel being collected, through whichever engine.

    Args:
        odar: says what an item may take; asks nobody.
        folder: where the answers go.
        jobs: every item that the panel is to hold.
    """

    def __init__(self, odar: Odar, folder: PanelFolder, jobs: Sequence[Job]) -> None:
        self.folder = folder
        self.items = make_items(odar, (job for job in jobs if job.key not in folder.compacted))
        self.total = len(jobs)
        self._spent = folder.spent()

    def missing(self) -> list[Item]:
        """The items that are not finished."""
        return self.folder.journal.missing(self.items)

    async def run(
        self,
        open_engine: Callable[[], AbstractAsyncContextManager[Executor]],
        *,
        concurrency: int = 4,
        budget_usd: float | None = None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> Progress:
        """Answer every item that is not finished. A failed one is tried again by the next run.

        Args:
            open_engine: where the work is done, and what the work is.
            concurrency: items at a time.
            budget_usd: stop before the panel as a whole has cost more, earlier runs included.
            on_progress: told after each item.
        """
        if budget_usd is not None and self._spent is None:
            raise BudgetExceeded("the budget cannot be kept: what earlier runs have cost is unknown")
        done = await run(
            self.items,
            open_engine,
            self.folder.journal,
            concurrency=concurrency,
            budget_usd=budget_usd,
            spent_usd=self._spent or 0.0,
            on_progress=lambda progress: on_progress(self.whole(progress)),
        )
        return self.whole(done)

    def whole(self, progress: Progress) -> Progress:
        """How far the panel is, with the items that were in its Parquet file before."""
        before = self.total - len(self.items)
        cost = None if progress.cost_usd is None or self._spent is None else progress.cost_usd + self._spent
        return replace(progress, total=self.total, done=progress.done + before, cost_usd=cost)
