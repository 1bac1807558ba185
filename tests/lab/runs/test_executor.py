from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from odar.errors import BudgetExceeded
from odar.lab.runs.executor import Progress, WorkResult, run
from odar.lab.runs.journal import Journal, WorkItem
from odar.lab.runs.limits import REQUESTS
from support.waiting import until


class Bench:
    """Work that counts what it does, and can fail, wait or raise."""

    def __init__(self, cost=0.1):
        self.done, self.opened, self.closed = [], 0, 0
        self.cost, self.fail, self.broken, self.lost = cost, set(), set(), 0
        self.now = self.most = 0
        self.wait = asyncio.sleep

    @asynccontextmanager
    async def __call__(self):
        self.opened += 1
        yield self.work
        self.closed += 1

    async def work(self, item, memo):
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.wait(0.01 * (10 - len(self.done)) if len(self.done) < 10 else 0)
        finally:
            self.now -= 1
        if item.key in self.broken:
            raise RuntimeError("a bug")
        self.done.append(item.key)
        error = {"type": "X"} if item.key in self.fail else None
        row = {"id": item.key, "double": 2 * item.payload, "cost_usd": self.cost, "error": error, "digest": ""}
        return WorkResult(row, {("p", REQUESTS): 1}, self.lost)


def items(n, worst=0.3, **more):
    return [WorkItem(str(i), i, worst_cost_usd=worst, **more) for i in range(n)]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out.jsonl"


def rows(out):
    return [json.loads(line) for line in out.read_text().splitlines()]


async def run_once(bench, todo, out, rates=None, **options):
    with Journal(out) as journal:
        return await run(todo, bench, journal, rates=rates, **options)


async def test_every_item_is_done_once_and_rows_keep_the_order_of_the_items(out):
    bench, seen = Bench(), []
    done = await run_once(bench, items(20), out, concurrency=4, on_progress=seen.append)
    assert done == Progress(20, 20, 0, pytest.approx(2.0), asked=20)
    assert [row["double"] for row in rows(out)] == [2 * i for i in range(20)]
    assert sorted(map(int, bench.done)) == list(range(20))
    assert (bench.most, bench.opened, bench.closed) == (4, 1, 1)
    assert seen[9].done == 10 and seen[9].cost_to_go_usd == pytest.approx(1.0)


async def test_a_second_run_does_not_open_the_work(out):
    await run_once(Bench(), items(3), out)
    bench = Bench()
    assert (await run_once(bench, items(3), out)).asked == 0
    assert bench.opened == 0


async def test_failed_items_are_tried_again_and_counted_once(out):
    bench = Bench()
    bench.fail = {"1"}
    first = await run_once(bench, items(3), out)
    assert (first.done, first.failed) == (3, 1)
    bench.fail = set()
    second = await run_once(bench, items(3), out)
    assert second == Progress(3, 3, 0, pytest.approx(0.3), asked=1)
    assert len(rows(out)) == 3


async def test_rows_of_other_items_may_have_an_unknown_cost(out):
    await run_once(Bench(cost=None), items(2), out)
    done = await run_once(Bench(), items(3)[2:], out)
    assert done == Progress(1, 1, 0, pytest.approx(0.1), asked=1)
    assert [row["id"] for row in rows(out)] == ["2", "0", "1"]


async def test_an_unexpected_exception_stops_the_run_and_keeps_finished_rows(out):
    bench = Bench()
    bench.broken = {"5"}
    with pytest.raises(RuntimeError, match="a bug"):
        await run_once(bench, items(9), out, concurrency=1)
    assert [row["id"] for row in rows(out)] == ["0", "1", "2", "3", "4"]
    bench.broken = set()
    assert (await run_once(bench, items(9), out)).asked == 4


class TestBudget:
    async def test_it_is_not_exceeded_even_if_every_item_costs_its_maximum(self, out):
        bench = Bench(cost=0.3)
        done = await run_once(bench, items(10), out, budget_usd=1.0, concurrency=4)
        assert (done.done, done.cost_usd) == (3, pytest.approx(0.9))
        assert "the budget of $1 does not cover the next question, which can cost $0." in done.stopped

    async def test_items_cheaper_than_their_maximum_free_budget(self, out):
        assert (await run_once(Bench(cost=0.1), items(10), out, budget_usd=1.0)).done == 8

    async def test_costs_of_earlier_runs_count(self, out):
        await run_once(Bench(cost=0.3), items(10), out, budget_usd=0.7)
        assert (await run_once(Bench(cost=0.3), items(10), out, budget_usd=0.7)).asked == 0

    async def test_failed_attempts_count(self, out):
        bench = Bench(cost=0.3)
        bench.fail = {"0"}
        await run_once(bench, items(1), out, budget_usd=0.5)
        assert (await run_once(bench, items(1), out, budget_usd=0.5)).asked == 0
        assert (await run_once(bench, items(1), out, budget_usd=0.6)).asked == 1

    async def test_an_unknown_cost_counts_as_the_maximum(self, out):
        done = await run_once(Bench(cost=None), items(10), out, budget_usd=1.0)
        assert (done.done, done.cost_usd, done.cost_to_go_usd) == (3, None, None)

    async def test_calls_of_a_lost_worker_count_at_their_maximum_cost(self, out):
        bench = Bench(cost=None)
        bench.lost = 1
        done = await run_once(bench, items(10), out, budget_usd=1.3, concurrency=1)
        assert (done.done, done.cost_usd) == (2, None)
        assert "does not cover" in done.stopped

    async def test_an_unknown_price_is_rejected(self, out):
        with pytest.raises(BudgetExceeded, match="price is unknown"):
            await run_once(Bench(), items(2, worst=None), out, budget_usd=1.0)


async def test_items_wait_for_the_rate_limit(out):
    bench = Bench()
    todo = items(5, needs={("p", REQUESTS): 2})
    running = asyncio.create_task(run_once(bench, todo, out, {("p", REQUESTS): 4}))
    await until(lambda: len(bench.done) == 3)
    await asyncio.sleep(0.05)
    # Two start at once and use one request each; a third fits beside those, a fourth (3 + 2) has to wait.
    assert len(bench.done) == 3
    assert bench.most == 2
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
