"""A background thread that writes records in batches; callers never wait for the database.

Records that cannot be written, because the disk is full or the server is down, stay in the queue and are tried
again. Records that do not fit into the queue are dropped and counted. No error reaches the request.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Table, insert, select

from odar.errors import OdarError, StoreError, one_line
from odar.settings import StoreSettings
from odar.traces.cut_off import cut_off_counts
from odar.traces.database import Database, add_spending, documents, traces
from odar.traces.overview import BINS, changed_by_others, count_slow_calls
from odar.traces.record import Record, finite_or_none, to_document, to_json, to_utc
from odar.types import Query, Trace

BATCH = 64
"""Maximum number of traces in one transaction. With 200, the gateway needs up to 10 MB more under full load."""
MAX_QUEUED = 10_000
"""Maximum number of queued traces; further ones are dropped."""
MAX_QUEUED_BYTES = 64 << 20
CLOSE_S = 10.0
"""Longest time to write the queue when the writer closes."""
FLUSH_INTERVAL_S = 0.5
"""Longest delay before traces are written."""
_MAX_RETRY_PAUSE_S = 10.0
"""Longest pause between two attempts while the database fails."""
_YIELD_EVERY = 4
"""Number of records converted before the thread releases the GIL: about half a millisecond of work. Each waiting
batch adds as many, because a busy event loop keeps the GIL for 5 ms each time, and the queue would grow."""
_EDGES = [i / BINS for i in range(1, BINS)]
"""Lower edges of the bins after the first; computing int(d·100) instead would round 0.29 down to 28."""
_INT_MAX = 2**63 - 1
Row = dict[str, Any]
"""A record as the columns of `traces` and `documents`, and `charge_to`: the key that is charged."""


def make_row(record: Record, *, content: bool) -> Row:
    """The record as a row; with its texts only if `content`."""
    document = to_document(record, content=content)
    trace = record.trace
    spend = trace.spend
    plan = trace.plan
    verdict = document["verdict"]
    query = record.query or Query("")
    answer = trace.candidates[0].text if trace.candidates else None
    if isinstance(trace, Trace):
        answer = trace.winner.text
    difficulty = None if plan is None else finite_or_none(plan.estimate.difficulty)
    cut_off = cut_off_counts(trace.candidates, query.parameters)
    names = [*(call.model for call in trace.calls), *(candidate.model for candidate in trace.candidates)]
    trace_id = replace_invalid_chars(trace.id)
    return {
        "id": trace_id,
        "started_at": to_utc(trace.started_at),
        "status": document["status"],
        "error": replace_invalid_chars(document["error"]),
        "path": document["path"],
        "difficulty": difficulty,
        "bin": None if difficulty is None else bisect_right(_EDGES, difficulty),
        "degraded": bool(document["degradations"]),
        "models": replace_invalid_chars("," + ",".join(dict.fromkeys(names)) + ","),
        "calls": spend.calls,
        "cost_usd": finite_or_none(spend.cost_usd),
        "seconds": finite_or_none(spend.seconds) or 0.0,
        "tokens_in": _integer(spend.usage.input),
        "tokens_out": _integer(spend.usage.output),
        "query_characters": len(query.text),
        "key_id": record.key_id or None,
        "forced": plan and plan.forced,
        "stages": plan and ",".join(str(d.stage) for d in trace.decisions if d.stage is not None),
        "slow_calls": count_slow_calls(trace.calls),
        "baseline_usd": finite_or_none(document["baseline_usd"]),
        "changed": verdict and changed_by_others(trace.candidates, verdict["winner"]),
        "answers": ",".join(f"{agent} {answers} {cut}" for agent, (answers, cut) in cut_off.items()),
        "trace_id": trace_id,
        "body": to_json(document),
        "question": replace_invalid_chars(query.text) if content else None,
        "answer": replace_invalid_chars(answer) if content else None,
        "charge_to": None if record.charged else record.key_id or None,
    }


def write_rows(connection: Connection, rows: Sequence[Row]) -> None:
    """Insert the rows that are not stored yet, and add their cost to the spending of their keys.

    A batch is written again if its commit was not confirmed, so rows that were stored must not be counted twice.
    """
    new = {row["id"]: row for row in rows}
    for stored in connection.scalars(select(traces.c.id).where(traces.c.id.in_(list(new)))):
        del new[stored]
    if not new:
        return
    for table in (traces, documents):
        _bulk_insert(connection, table, list(new.values()))
    bills: dict[tuple[str, str], list[float | None]] = {}
    for row in new.values():
        if row["charge_to"] is not None:
            bills.setdefault((row["charge_to"], row["started_at"][:10]), []).append(row["cost_usd"])
    # Sorted: two processes that lock the same rows in different orders would wait for each other.
    for (key_id, day), costs in sorted(bills.items()):
        total = sum(cost for cost in costs if cost is not None)
        add_spending(connection, key_id, day, len(costs), total, costs.count(None))


def _bulk_insert(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows with the driver's own call: SQLAlchemy's processing of each value would double the time."""
    key = (table.name, connection.dialect.name)
    if key not in _INSERTS:
        names = [column.name for column in table.c if column.name in rows[0]]
        compiled = insert(table).compile(dialect=connection.dialect, column_keys=names)
        order = getattr(compiled, "positiontup", None)  # None if the driver takes its values by name
        _INSERTS[key] = str(compiled), itemgetter(*order) if order else dict
    statement, convert_row = _INSERTS[key]
    connection.exec_driver_sql(statement, list(map(convert_row, rows)))


_INSERTS: dict[tuple[str, str], tuple[str, Callable[[dict[str, Any]], Any]]] = {}
"""The INSERT statement and the function that converts a row for the driver, by table and dialect."""


def replace_invalid_chars(text: str | None) -> str | None:
    """The text with NUL and unpaired surrogates replaced, because not every database accepts them."""
    if text is None or (text.isascii() and "\0" not in text):
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _integer(value: int | None) -> int | None:
    return value if value is not None and abs(value) <= _INT_MAX else None


@dataclass(frozen=True, slots=True)
class Health:
    """The state of the store."""

    ok: bool
    queued: int
    stored: int
    """Records written since the start."""
    dropped: int
    """Records dropped because the queue was full or the store was closed."""
    rejected: int
    """Records that could not be converted, or that the database rejected."""
    error: str | None
    """Why the database cannot be written to."""


class TraceWriter:
    """A bounded queue and the thread that empties it.

    The thread calls `maintain` about once per interval; it returns True if it reached the database.
    """

    def __init__(
        self, database: Database, settings: StoreSettings, maintain: Callable[[], bool] = lambda: False
    ) -> None:
        self._database = database
        self._settings = settings
        self._maintain = maintain
        self._wake = threading.Condition()
        self._queue: deque[Record] = deque()
        self._bytes: Counter[str] = Counter()
        self._flushes: list[Future[bool]] = []
        self._closing = False
        self._close_by = 0.0
        self._stored = self._dropped = self._rejected = 0
        self._error: str | None = None
        self._pause = 0.0
        self._retry_at = 0.0
        self._thread = threading.Thread(target=self._run, name="odar-store", daemon=True)
        self._thread.start()

    def put(self, record: Record) -> bool:
        """Queue a record; return False if it was dropped. Never waits for the database and never raises."""
        weight = record.memory_bytes()
        with self._wake:
            # A key takes at most as much memory as it leaves free: its large questions push out no others' records.
            own = self._bytes[record.key_id] if record.key_id else 0
            full = len(self._queue) >= MAX_QUEUED or own + weight > MAX_QUEUED_BYTES - self._bytes.total()
            if self._closing or full:
                self._dropped += 1
                return False
            self._queue.append(record)
            self._bytes[record.key_id] += weight
            if len(self._queue) == BATCH:
                self._wake.notify()
        return True

    def flush(self) -> Future[bool]:
        """Write all queued records; return a future that tells whether all of them are in the database."""
        future: Future[bool] = Future()
        with self._wake:
            if self._closing:
                future.set_result(not self._queue)
            else:
                self._flushes.append(future)
                self._wake.notify()
        return future

    def close(self, timeout_s: float) -> bool:
        """Write the queue, within the timeout, and stop; return whether nothing was lost."""
        with self._wake:
            self._closing = True
            self._close_by = time.monotonic() + timeout_s
            self._wake.notify()
        self._thread.join(timeout_s)
        with self._wake:
            lost = len(self._queue)
            self._dropped += lost
            self._queue.clear()
            self._bytes.clear()
        return lost == 0

    def health(self) -> Health:
        with self._wake:
            queued = len(self._queue)
            ok = self._error is None and queued < MAX_QUEUED
            return Health(ok, queued, self._stored, self._dropped, self._rejected, self._error)

    # ── in the thread ───────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        while not self._closing:
            with self._wake:
                self._wake.wait_for(self._is_urgent, FLUSH_INTERVAL_S)
                flushes, self._flushes = self._flushes, []
                waiting = len(self._queue)
            done = self._write(waiting) if flushes or time.monotonic() >= self._retry_at else not waiting
            for future in flushes:
                future.set_result(done)
            try:
                if self._maintain() and not self._queue:
                    self._note_result(None)
            except Exception as error:  # the thread must survive
                self._note_result(error)
        while not self._write(len(self._queue)) and time.monotonic() < self._close_by:
            time.sleep(0.1)
        for future in self._flushes:  # requested during the last write
            future.set_result(not self._queue)

    def _is_urgent(self) -> bool:
        full = len(self._queue) >= BATCH and time.monotonic() >= self._retry_at
        return full or bool(self._flushes) or self._closing

    def _write(self, count: int) -> bool:
        """Write this many records in batches; return False if the database fails."""
        while count > 0:
            with self._wake:
                batch = list(islice(self._queue, min(count, BATCH)))
            if not batch:
                break
            try:
                self._commit(batch)
            except Exception as error:  # the thread must survive
                self._note_result(error)
                return False
            with self._wake:
                for record in batch[: len(self._queue)]:  # all of them, unless `close` timed out
                    self._queue.popleft()
                    self._bytes[record.key_id] -= record.memory_bytes()
                self._bytes += Counter()  # without keys that have no record
            count -= len(batch)
            self._note_result(None)
        return True

    def _commit(self, batch: Sequence[Record]) -> None:
        rows: list[Row] = []
        yield_every = _YIELD_EVERY * max(1, len(self._queue) // BATCH)
        for number, record in enumerate(batch):
            if number % yield_every == 0:
                time.sleep(0)  # lets the event loop's thread run, which would otherwise wait up to 5 ms
            try:
                rows.append(make_row(record, content=self._settings.content))
            except Exception:  # one bad record must not stop the others
                self._rejected += 1
        if not self._write_rows(rows):  # one of them is bad: find it, keep the others
            self._rejected += sum(not self._write_rows([row]) for row in rows)

    def _write_rows(self, rows: Sequence[Row]) -> bool:
        """Write the rows; return False if the database rejected them."""
        try:
            with self._database.write() as connection:
                write_rows(connection, rows)
        except StoreError as error:
            if error.at_fault != "rows":
                raise
            return False
        except OdarError:
            raise
        except Exception:  # of the driver, such as OverflowError
            return False
        self._stored += len(rows)
        return True

    def _note_result(self, error: Exception | None) -> None:
        """Record an error of the database and when to try again; None records that it works."""
        self._error = None if error is None else one_line(error)
        self._pause = 0.0 if error is None else min(_MAX_RETRY_PAUSE_S, max(2 * self._pause, FLUSH_INTERVAL_S))
        self._retry_at = time.monotonic() + self._pause
