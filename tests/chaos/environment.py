"""Everything one run needs: two upstreams, numbers for the questions, a folder; and how a fault is tried and judged."""

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
from odar.store.archive import Archive
from odar.store.database import Database
from odar.store.record import Filter

PATIENCE_S = 15.0
"""How long a gateway may take to be as it was, once a fault is over."""


@dataclass(slots=True)
class Outcome:
    """What became of one fault."""

    fault: str
    what: str
    asked: list[Asked] = field(default_factory=list)
    recovered_s: float | None = None
    """Until questions on the Simple and the Hard path were answered by both agents again."""
    before: Footprint | None = None
    after: Footprint | None = None
    requests: int = 0
    """That reached the upstreams, by their own count."""
    tokens: int = 0
    unknown: int = 0
    """Calls that the ledger marks as of unknown cost."""
    traces: int = 0
    lost: int = 0
    """Answers given in the last moment before a kill, whose traces went down with the process."""
    broken: list[str] = field(default_factory=list)
    """Promises that did not hold."""
    skipped: str = ""

    @property
    def held(self) -> bool:
        """Whether every promise held."""
        return not self.broken


@dataclass(slots=True)
class House:
    """The upstreams and what faults share."""

    folder: Path
    fast: CountingUpstream
    slow: CountingUpstream
    clients: int = 16
    pace: float = 1.0
    """Seconds that each phase of a fault lasts."""
    numbers: Iterator[int] = field(default_factory=numbered)

    @property
    def upstreams(self) -> tuple[CountingUpstream, CountingUpstream]:
        """Both."""
        return self.fast, self.slow

    def load(self, gateway: Gateway, **options: Any) -> Load:
        """Clients at this gateway."""
        return Load(gateway.url, self.numbers, self.clients, DEADLINE_S, **options)

    async def warm(self, gateway: Gateway) -> Footprint:
        """Ask everything once, so that what loads on first use is there; then what the process holds."""
        await until(gateway.loading, "gateways are still loading", patience_s=60)  # on a busy machine
        async with self.load(gateway):
            await asyncio.sleep(self.pace)
        await self.come_clean(gateway)
        return await gateway.at_rest()

    async def come_clean(self, gateway: Gateway) -> None:
        """Both upstreams as they should be, and no idle connection kept: what is open then has been forgotten."""
        for upstream in self.upstreams:
            upstream.misbehave(None)
        await until(lambda: gateway.metric("odar_in_flight"), "requests are still in flight")
        for upstream in self.upstreams:
            upstream.hang_up()

    async def recovery(self, gateway: Gateway) -> tuple[list[Asked], float | None]:
        """Ask until both agents answer again; how long that took, None where they never did."""
        asked: list[Asked] = []
        began, rng = time.monotonic(), random.Random(0)
        load = Load(gateway.url, self.numbers, 0, DEADLINE_S)
        async with load:
            while time.monotonic() < began + PATIENCE_S:
                latest = [await load.ask(rng, model) for model in ("odar-simple", "odar-hard")]
                asked += latest
                if all(each.outcome == ANSWER for each in latest):
                    return asked, time.monotonic() - began
                await asyncio.sleep(0.1)
        return asked, None

    def books(self, numbers: set[int]) -> dict[int, Tally]:
        """What both upstreams counted for these questions."""
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
        """Hold what was seen against the promises. `killed_at`: when a gateway went down, on the monotonic clock."""
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
            outcome.broken.append(f"not as before {PATIENCE_S:g} s after the fault was over")


@asynccontextmanager
async def house(folder: Path, **options: Any) -> AsyncIterator[House]:
    """A house with its upstreams running."""
    async with CountingUpstream(seed=1) as fast, CountingUpstream(seed=2) as slow:
        yield House(folder, fast, slow, **options)


async def under_fault(
    home: House,
    gateway: Gateway,
    outcome: Outcome,
    happen: Callable[[], Awaitable[None]],
    **load: Any,
) -> None:
    """Load, and the fault in the midst of it; then recovery, and what the process still holds."""
    outcome.before = outcome.before or await home.warm(gateway)
    async with home.load(gateway, **load) as clients:
        await happen()
    outcome.asked += clients.asked
    try:
        await home.come_clean(gateway)
        asked, outcome.recovered_s = await home.recovery(gateway)
        outcome.asked += asked
        await home.come_clean(gateway)
        await until(lambda: gateway.metric("odar_store_queue"), "traces still wait to be written")
    except TimeoutError as stuck:
        outcome.broken.append(str(stuck) or "the gateway did not answer within 10 s")
    outcome.after = await gateway.settled(outcome.before)
    outcome.broken += short(gateway.complaints())


async def until(figure: Callable[[], Awaitable[float]], otherwise: str, patience_s: float = PATIENCE_S) -> None:
    """Wait until a figure is 0, or TimeoutError."""
    deadline = time.monotonic() + patience_s
    while (left := await figure()) > 0:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{left:g} {otherwise} after {patience_s:g} s")
        await asyncio.sleep(0.05)


def read_store(url: str, since: str | None = None) -> dict[int, dict[str, Any]]:
    """The traces in a store, by the number of their question."""
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
    """Questions without a trace that are excused: broken off by the kill, or answered just before it."""
    assert due is not None
    late = {each.number for each in asked if each.outcome in (BROKEN, SILENT) or each.finished_at >= due}
    return late - bills.keys()
