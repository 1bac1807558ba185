"""The environment of a run (two upstreams, numbered questions, a folder), and how a fault is tried and judged."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.gateway import DEADLINE_S, FLUSH_S, Footprint, Gateway
from chaos.load import ANSWER, BROKEN, SILENT, Asked, Load, numbered
from chaos.promises import Bill, answered, bill_of, ledger_agrees, nothing_left, short, traces_present
from chaos.upstream import CountingUpstream, Tally

from odar.settings import StoreSettings
from odar.traces.archive import Archive
from odar.traces.database import Database
from odar.traces.filter import Filter

RECOVERY_LIMIT_S = 15.0
"""How long a gateway may take to recover after a fault."""


@dataclass(slots=True)
class Outcome:
    """The result of one fault."""

    fault: str
    what: str
    asked: list[Asked] = field(default_factory=list)
    recovered_s: float | None = None
    """Time until both agents answered questions on the Simple and the Hard path again."""
    before: Footprint | None = None
    after: Footprint | None = None
    requests: int = 0
    """Requests counted by the upstreams."""
    tokens: int = 0
    unknown: int = 0
    """Calls of unknown cost in the ledger."""
    traces: int = 0
    lost: int = 0
    """Answers just before a kill whose traces were lost with the process."""
    broken: list[str] = field(default_factory=list)
    """Promises that did not hold."""
    skipped: str = ""

    @property
    def held(self) -> bool:
        return not self.broken


@dataclass(slots=True)
class Environment:
    """The upstreams and the options of a run."""

    folder: Path
    fast: CountingUpstream
    slow: CountingUpstream
    clients: int = 16
    pace: float = 1.0
    """Seconds that each phase of a fault lasts."""
    numbers: Iterator[int] = field(default_factory=numbered)

    @property
    def upstreams(self) -> tuple[CountingUpstream, CountingUpstream]:
        return self.fast, self.slow

    def load(self, gateway: Gateway, **options: Any) -> Load:
        return Load(gateway.url, self.numbers, self.clients, DEADLINE_S, **options)

    async def warm(self, gateway: Gateway) -> Footprint:
        """Use everything once, so that it is loaded; return the footprint of the process."""
        await until(gateway.loading, "gateways are still loading", timeout_s=60)  # on a busy machine
        async with self.load(gateway):
            await asyncio.sleep(self.pace)
        await self.reset_upstreams(gateway)
        return await gateway.at_rest()

    async def reset_upstreams(self, gateway: Gateway) -> None:
        """Reset both upstreams and close idle connections, so that open ones are leaks."""
        for upstream in self.upstreams:
            upstream.misbehave(None)
        await until(lambda: gateway.metric("odar_in_flight"), "requests are still in flight")
        for upstream in self.upstreams:
            upstream.close_connections()

    async def recovery(self, gateway: Gateway) -> tuple[list[Asked], float | None]:
        """Ask until both agents answer again; return the questions and the duration, None if they never did."""
        asked: list[Asked] = []
        began, rng = time.monotonic(), random.Random(0)
        load = Load(gateway.url, self.numbers, 0, DEADLINE_S)
        async with load:
            while time.monotonic() < began + RECOVERY_LIMIT_S:
                latest = [await load.ask(rng, model) for model in ("odar-simple", "odar-hard")]
                asked += latest
                if all(each.outcome == ANSWER for each in latest):
                    return asked, time.monotonic() - began
                await asyncio.sleep(0.1)
        return asked, None

    def books(self, numbers: set[int]) -> dict[int, Tally]:
        """Return the counts of both upstreams for these questions."""
        found: dict[int, Tally] = {}
        for upstream in self.upstreams:
            for number in upstream.books.keys() & numbers:
                tally, booked = found.setdefault(number, Tally()), upstream.books[number]
                tally.requests += booked.requests
                tally.choices += booked.choices
                tally.tokens += booked.tokens
        return found

    async def judge(
        self,
        outcome: Outcome,
        store: str,
        *,
        since: str | None = None,
        may_refuse: bool = False,
        killed_at: float | None = None,
    ) -> None:
        """Check the promises. `killed_at` is the monotonic time when a gateway was killed."""
        documents = await asyncio.to_thread(read_store, store, since)
        bills = {number: bill_of(document) for number, document in documents.items()}
        numbers = {each.number for each in outcome.asked}
        books = self.books(numbers)
        bills = {number: bill for number, bill in bills.items() if number in numbers}
        stored = {document["id"] for document in documents.values()}
        due = None if killed_at is None else killed_at - FLUSH_S - 2.0
        excused = set() if killed_at is None else _gone(outcome.asked, bills, due)
        outcome.requests = sum(tally.requests for tally in books.values())
        outcome.tokens = sum(tally.tokens for tally in books.values())
        outcome.unknown = sum(bill.unknown for bill in bills.values())
        outcome.traces = len(bills)
        outcome.lost = sum(each.trace is not None and each.number in excused for each in outcome.asked)
        outcome.broken += answered(outcome.asked, DEADLINE_S, may_break=killed_at is not None)
        if outcome.before is not None and outcome.after is not None:
            outcome.broken += nothing_left(outcome.before, outcome.after)
        outcome.broken += ledger_agrees(bills, books, excused, may_refuse=may_refuse)
        outcome.broken += traces_present(outcome.asked, stored, due)
        if outcome.recovered_s is None:
            outcome.broken.append(f"not as before {RECOVERY_LIMIT_S:g} s after the fault was over")


@asynccontextmanager
async def start_environment(folder: Path, **options: Any) -> AsyncIterator[Environment]:
    """A start_environment with its upstreams running."""
    async with CountingUpstream(seed=1) as fast, CountingUpstream(seed=2) as slow:
        yield Environment(folder, fast, slow, **options)


async def under_fault(
    env: Environment,
    gateway: Gateway,
    outcome: Outcome,
    happen: Callable[[], Awaitable[None]],
    **load: Any,
) -> None:
    """Run the fault under load, then measure recovery and the footprint of the process."""
    outcome.before = outcome.before or await env.warm(gateway)
    async with env.load(gateway, **load) as clients:
        await happen()
    outcome.asked += clients.asked
    try:
        await env.reset_upstreams(gateway)
        asked, outcome.recovered_s = await env.recovery(gateway)
        outcome.asked += asked
        await env.reset_upstreams(gateway)
        await until(lambda: gateway.metric("odar_store_queue"), "traces still wait to be written")
    except TimeoutError as stuck:
        outcome.broken.append(str(stuck) or "the gateway did not answer within 10 s")
    outcome.after = await gateway.settled(outcome.before)
    outcome.broken += short(gateway.complaints())


async def until(
    figure: Callable[[], Awaitable[float]], otherwise: str, timeout_s: float = RECOVERY_LIMIT_S
) -> None:
    """Wait until a figure is 0; raise TimeoutError after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while (left := await figure()) > 0:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{left:g} {otherwise} after {timeout_s:g} s")
        await asyncio.sleep(0.05)


def read_store(url: str, since: str | None = None) -> dict[int, dict[str, Any]]:
    """Return the traces of a store by the number of their question."""
    database = Database(StoreSettings(url=url))
    try:
        rows = Archive(database).export(Filter(since=since) if since else None)
        documents = [row["document"] for row in rows]
    finally:
        database.close()
    return {
        int(document["query"]["text"].split(":")[0].removeprefix("Question ")): document for document in documents
    }


def _gone(asked: list[Asked], bills: dict[int, Bill], due: float | None) -> set[int]:
    """Return questions that may lack a trace: interrupted by the kill, or answered just before it."""
    assert due is not None
    late = {each.number for each in asked if each.outcome in (BROKEN, SILENT) or each.finished_at >= due}
    return late - bills.keys()
