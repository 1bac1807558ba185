"""The thread that writes: records go in without waiting, and come out in batches.

What cannot be written now, because the disk is full or the server away, stays in the queue and is tried again; what
no longer fits is shed and counted. Nothing that goes wrong here reaches the request that brought the record.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Table, insert, select

from odar.errors import OdarError, StoreError, one_line
from odar.policy.cut_off import cut_off_counts
from odar.settings import StoreSettings
from odar.store.budgets import add_spending
from odar.store.database import Database
from odar.store.document import dumps, to_document
from odar.store.overview import BINS, changed_by_slow, slow_share
from odar.store.record import Charge, Record, known, utc
from odar.store.schema import documents, traces
from odar.types import Answer

_EDGES = [i / BINS for i in range(1, BINS)]
"""Where each bin after the first begins, compared as thresholds are; 0.29·100 would fall short of 29."""
_INT_MAX = 2**63 - 1
BATCH = 200
"""Traces in one transaction, at most."""
MAX_QUEUED = 10_000
"""Traces that may wait to be written; further ones are dropped."""
MAX_QUEUED_BYTES = 64 << 20
"""Memory that they may take, roughly."""
_LONGEST_PAUSE_S = 10.0
"""Between two tries of a database that fails."""
_AT_A_TIME = 4
"""Records converted before the thread yields the interpreter: about half a millisecond of work."""


@dataclass(frozen=True, slots=True)
class Row:
    """A record made ready for the database."""

    figures: dict[str, Any]
    document: dict[str, Any]
    settled: bool = False


def make_row(record: Record, *, content: bool) -> Row:
    """Everything that needs the record itself; what is left is plain data."""
    document = to_document(record, content=content)
    whole, spend, decision = record.outcome, record.spend, document["decision"]
    started_at = utc(record.started_at)
    answered = isinstance(whole, Answer)
    answer = (
        whole.answer if isinstance(whole, Answer) else (record.candidates[0].text if record.candidates else None)
    )
    counted = decision and (
        decision["estimate"]["difficulty"] if decision["posterior"] is None else decision["posterior"]
    )
    difficulty = decision and known(counted)
    figures = {
        "id": clean(record.id),
        "started_at": started_at,
        "day": started_at[:10],
        "profile": clean(document["profile"]),
        "status": document["status"],
        "error": clean(document["error"]),
        "path": document["path"],
        "difficulty": difficulty,
        "bin": None if difficulty is None else bisect_right(_EDGES, difficulty),
        "expert": decision and decision["assignment"]["expert"],
        "scorer": document["verdict"]["scorer"] if answered else None,
        "degraded": bool(document["degradations"]),
        "models": clean("," + ",".join(dict.fromkeys(_models(record))) + ","),
        "calls": spend.calls,
        "cost_usd": known(spend.cost_usd),
        "seconds": known(spend.seconds) or 0.0,
        "tokens_in": _integer(spend.usage.input),
        "tokens_out": _integer(spend.usage.output),
        "query_characters": len(record.query.text),
        "answer_characters": None if answer is None else len(answer),
        "key_id": record.key_id,
        "forced": decision and decision["forced"],
        **_agents(record, document),
    }
    texts = {"question": clean(record.query.text), "answer": clean(answer)}
    empty = dict.fromkeys(texts)
    return Row(
        figures,
        {"trace_id": figures["id"], "body": dumps(document)} | (texts if content else empty),
        record.settled,
    )


def write_rows(connection: Connection, rows: Sequence[Row]) -> list[Row]:
    """Insert what is not there yet, and put it on the keys' bills; returns what was new.

    A batch whose commit was lost on the way back is written again: what did arrive must not be counted twice.
    """
    ids = [row.figures["id"] for row in rows]
    there = set(connection.scalars(select(traces.c.id).where(traces.c.id.in_(ids))))
    new = list({row.figures["id"]: row for row in rows if row.figures["id"] not in there}.values())
    if new:
        _insert(connection, traces, [row.figures for row in new])
        _insert(connection, documents, [row.document for row in new])
        _bill(connection, charges(new))
    return new


def _insert(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """As the driver takes them: SQLAlchemy would look at each value once more, which takes as long as the rest."""
    known = (table.name, connection.dialect.name)
    if known not in _STATEMENTS:
        compiled = insert(table).compile(dialect=connection.dialect)
        order = getattr(compiled, "positiontup", None)  # None where the driver wants its values by name
        _STATEMENTS[known] = str(compiled), itemgetter(*order) if order else dict
    statement, values = _STATEMENTS[known]
    connection.exec_driver_sql(statement, list(map(values, rows)))


_STATEMENTS: dict[tuple[str, str], tuple[str, Callable[[dict[str, Any]], Any]]] = {}
"""For a table and a dialect: the insert of a whole row, and how the driver wants the row."""


def charges(rows: Iterable[Row]) -> list[Charge]:
    """What these rows cost their keys."""
    figures = (row.figures for row in rows if not row.settled)
    return [Charge(each["key_id"], each["day"], each["cost_usd"]) for each in figures if each["key_id"] is not None]


def _bill(connection: Connection, items: Iterable[Charge]) -> None:
    totals: dict[tuple[str, str], list[float]] = {}
    for item in items:
        total = totals.setdefault((item.key_id, item.day), [0, 0.0, 0])
        total[0] += 1
        total[1] += item.cost_usd or 0.0
        total[2] += item.cost_usd is None
    # Sorted: two processes that lock the same rows in different orders would wait for each other.
    for (key, day), (requests, cost, unknown) in sorted(totals.items()):
        add_spending(connection, key, day, int(requests), cost, int(unknown))


def _models(record: Record) -> Iterable[str]:
    yield from (call.model for call in record.calls)
    yield from (candidate.model for candidate in record.candidates)


def _agents(record: Record, document: dict[str, Any]) -> dict[str, Any]:
    """What the slow agent cost and changed, and how many answers of each agent were cut off."""
    slow_calls, slow_cost = slow_share(record.calls)
    found = {"slow_calls": slow_calls, "slow_cost_usd": slow_cost, "changed": None}
    if document["verdict"] is not None:
        found["changed"] = changed_by_slow(record.candidates, document["verdict"]["winner"])
    for role, (answers, cut) in cut_off_counts(record.candidates, record.query.options).items():
        found |= {f"{role}_answers": answers, f"{role}_cut_off": cut}
    return found


def clean(text: str | None) -> str | None:
    """Text that both databases take: no NUL, no unpaired surrogate. The document keeps them, as escapes."""
    if text is None or (text.isascii() and "\0" not in text):
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _integer(value: int | None) -> int | None:
    return value if value is not None and abs(value) <= _INT_MAX else None


@dataclass(frozen=True, slots=True)
class Health:
    """How the store is doing."""

    ok: bool
    queued: int
    """Records that wait to be written."""
    stored: int
    """Records written since the start."""
    dropped: int
    """Records shed because the queue was full, or lost at the end."""
    rejected: int
    """Records that the database would not take."""
    error: str | None
    """What the database says, while it fails."""
    rejection: str | None = None
    """Why the last of the rejected was."""


class TraceWriter:
    """A bounded queue and the thread that empties it.

    Args:
        database: where to.
        settings: batch, interval and bounds.
        after: called by the thread with each batch that has been committed.
        tend: called by the thread after every round, about once per interval; True if it reached the database.
    """

    def __init__(
        self,
        database: Database,
        settings: StoreSettings,
        after: Callable[[Sequence[Row]], None] = lambda rows: None,
        tend: Callable[[], bool] = lambda: False,
    ) -> None:
        self._database = database
        self._settings = settings
        self._after = after
        self._tend = tend
        self._wake = threading.Condition()
        self._queue: deque[Record] = deque()
        self._bytes = 0
        self._flushes: list[Future[bool]] = []
        self._closing = False
        self._close_by = 0.0
        self._stored = self._dropped = self._rejected = 0
        self._error: str | None = None
        self._rejection: str | None = None
        self._pause = 0.0
        self._retry_at = 0.0
        self._thread = threading.Thread(target=self._run, name="odar-store", daemon=True)
        self._thread.start()

    def put(self, record: Record) -> bool:
        """Queue a record; False if it was shed. Takes microseconds, never waits for the database, never raises."""
        weight = record.weight()
        with self._wake:
            full = len(self._queue) >= MAX_QUEUED
            if self._closing or full or self._bytes + weight > MAX_QUEUED_BYTES:
                self._dropped += 1
                return False
            self._queue.append(record)
            self._bytes += weight
            if len(self._queue) == BATCH:
                self._wake.notify()
        return True

    def flush(self) -> Future[bool]:
        """Done when all that was put before has been tried; True if all of it is in the database."""
        future: Future[bool] = Future()
        with self._wake:
            if self._closing:
                future.set_result(not self._queue)
            else:
                self._flushes.append(future)
                self._wake.notify()
        return future

    def close(self, timeout_s: float) -> bool:
        """Write what is left, within the timeout, and stop; True if nothing was lost."""
        with self._wake:
            self._closing = True
            self._close_by = time.monotonic() + timeout_s
            self._wake.notify()
        self._thread.join(timeout_s)
        with self._wake:
            lost, self._bytes = len(self._queue), 0
            self._dropped += lost
            self._queue.clear()
        return lost == 0

    def health(self) -> Health:
        """The figures of this moment."""
        with self._wake:
            queued = len(self._queue)
            ok = self._error is None and queued < MAX_QUEUED
            return Health(ok, queued, self._stored, self._dropped, self._rejected, self._error, self._rejection)

    # ── in the thread ───────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        while not self._closing:
            with self._wake:
                self._wake.wait_for(self._is_urgent, self._settings.flush_interval_s)
                flushes, self._flushes = self._flushes, []
                waiting = len(self._queue)
            done = self._write(waiting) if flushes or time.monotonic() >= self._retry_at else not waiting
            for future in flushes:
                future.set_result(done)
            try:
                if self._tend() and not self._queue:
                    self._recovered()
            except Exception as error:  # the thread must survive
                self._failed(error)
        while not self._write(len(self._queue)) and time.monotonic() < self._close_by:
            time.sleep(0.1)
        for future in self._flushes:  # asked for while we were at it
            future.set_result(not self._queue)

    def _is_urgent(self) -> bool:
        full = len(self._queue) >= BATCH and time.monotonic() >= self._retry_at
        return full or bool(self._flushes) or self._closing

    def _write(self, count: int) -> bool:
        """Write this many, batch by batch; False if the database fails."""
        while count > 0:
            with self._wake:
                batch = [self._queue[i] for i in range(min(count, BATCH, len(self._queue)))]
            if not batch:
                break
            try:
                self._commit(batch)
            except Exception as error:  # the thread must survive
                self._failed(error)
                return False
            with self._wake:
                for record in batch[: len(self._queue)]:  # all of them, unless `close` timed out
                    self._queue.popleft()
                    self._bytes -= record.weight()
            count -= len(batch)
            self._recovered()
        return True

    def _commit(self, batch: Sequence[Record]) -> None:
        rows = []
        for start in range(0, len(batch), _AT_A_TIME):
            time.sleep(0)  # lets the event loop's thread run, which would otherwise wait up to 5 ms
            rows += [row for row in map(self._row, batch[start : start + _AT_A_TIME]) if row is not None]
        try:
            self._insert(rows)
        except StoreError as error:
            if error.at_fault != "rows":
                raise
            for row in rows:  # one of them is bad: find it, keep the others
                self._insert_alone(row)

    def _row(self, record: Record) -> Row | None:
        try:
            return make_row(record, content=self._settings.content)
        except Exception as error:  # one bad record must not stop the others
            self._reject(f"{type(error).__name__} in a record")
            return None

    def _insert(self, rows: Sequence[Row]) -> None:
        try:
            with self._database.write() as connection:
                write_rows(connection, rows)
        except OdarError:
            raise
        except Exception as error:  # a driver's own, such as OverflowError: the rows are to blame
            raise StoreError(f"{type(error).__name__} in a row", "rows") from error
        with self._wake:
            self._stored += len(rows)
        self._after(rows)

    def _insert_alone(self, row: Row) -> None:
        try:
            self._insert([row])
        except StoreError as error:
            if error.at_fault != "rows":
                raise
            self._reject(str(error))

    def _reject(self, why: str) -> None:
        with self._wake:
            self._rejected += 1
            self._rejection = why

    def _failed(self, error: Exception) -> None:
        with self._wake:
            self._error = one_line(error)
            self._pause = min(_LONGEST_PAUSE_S, max(2 * self._pause, self._settings.flush_interval_s))
            self._retry_at = time.monotonic() + self._pause

    def _recovered(self) -> None:
        with self._wake:
            self._error = None
            self._pause = self._retry_at = 0.0
