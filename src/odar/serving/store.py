"""The store of a gateway: one database, and the parts that read and write it.

Records wait in the queue of `TraceWriter`, keys are held in memory by `KeyCache`, `Archive` reads traces.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import CTE, insert, literal, select, update

from odar.errors import StoreError, UnknownName
from odar.serving.budgets import Budgets
from odar.serving.keys import KeyCache, all_keys, keys_version
from odar.serving.sessions import StoredSessions
from odar.settings import Settings
from odar.traces.archive import Archive
from odar.traces.database import Database, responses
from odar.traces.observations import Observations, cascade_id
from odar.traces.record import Record
from odar.traces.retention import TrustedClock, delete_old_traces, newest_trace
from odar.traces.writer import CLOSE_S, FLUSH_INTERVAL_S, Health, TraceWriter

LOG = logging.getLogger("odar.serving")
T = TypeVar("T")
_REFRESH_S = 1.0
"""Seconds between checks for changes by other processes."""
_SWEEP_S = 3600.0
_MAX_WAIT_S = 2.0
"""Longest time to wait for a trace that another process may be about to write."""


class Store:
    """Traces, feedback, keys and conversations of one process. Thread-safe; starts the thread that writes.

    `owner` names a worker of a gateway: it frees what a worker of that name has left.
    """

    def __init__(self, settings: Settings, owner: str = "") -> None:
        self.settings = settings.store
        self.key_cache = KeyCache()
        self._database = Database(self.settings)
        self._is_shared = bool(owner) or not self._database.is_sqlite
        self.archive = Archive(self._database)
        self.responses = ResponseArchive(self._database)
        self.observations = Observations(self._database, cascade_id(settings))
        self.sessions = None if self._database.is_sqlite else StoredSessions(self._database)
        """Conversations, if gateways on other machines may continue them."""
        self._version: tuple[Any, ...] | None = None
        self._refresh_at = self._sweep_at = 0.0
        try:
            with self._database.read() as connection:
                self._clock = TrustedClock(newest_trace(connection))
            self._refresh_keys()
        except BaseException:
            self._database.close()
            raise
        self._threads = ThreadPoolExecutor(2, "odar-archive")
        self.budgets = Budgets(self._database, observe_usd_day=settings.observe.budget_usd_day, owner=owner)
        self._writer = TraceWriter(self._database, self.settings, maintain=self._run_maintenance)

    def put(self, record: Record) -> bool:
        """Record the result of a question; return False if it was dropped. Never waits and never raises.

        With `store.enabled = false` only the spending of keys with limits is kept.
        """
        return self._writer.put(record) if self.settings.enabled else False

    def health(self) -> Health:
        """The state of the store, without accessing the disk."""
        return self._writer.health()

    async def flush(self) -> bool:
        """Write all records in the queue; return whether all of them are on disk."""
        return await asyncio.wrap_future(self._writer.flush())

    async def close(self, timeout_s: float = CLOSE_S) -> bool:
        """Write the queue, within the timeout, and close; return whether nothing was lost."""
        closing = (asyncio.to_thread(part.close, timeout_s) for part in (self.budgets, self._writer))
        done = await asyncio.gather(*closing)
        self._threads.shutdown(wait=False)
        self._database.close()
        return all(done)

    async def get(self, trace_id: str) -> dict[str, Any]:
        """One trace with its document and feedback; raises UnknownName if there is none."""
        return await self._after_flush(partial(self.archive.get, trace_id))

    async def mark(self, trace_id: str, correct: bool, note: str | None = None, by: str | None = None) -> None:
        """Mark an answer; see `Archive.mark`."""
        await self._after_flush(partial(self.archive.mark, trace_id, correct, note, by))

    async def run(self, work: Callable[[], T]) -> T:
        """Run work on the database in the store's own threads, because the event loop's parse request bodies."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _after_flush(self, work: Callable[[], T]) -> T:
        """Work on a trace that may still be in the queue: if it is not found, try again after a flush."""
        try:
            return await self.run(work)
        except UnknownName:
            await self.flush()
            if self._is_shared:  # another process may have it in its queue
                await asyncio.sleep(min(_MAX_WAIT_S, 2 * FLUSH_INTERVAL_S))
            return await self.run(work)

    # ── in the writer's thread ──────────────────────────────────────────────────────────────────────────────

    def _run_maintenance(self) -> bool:
        if self.sessions is not None:
            self.sessions.write()
        now = time.monotonic()
        if now < self._refresh_at:
            return False
        self._refresh_at = now + _REFRESH_S
        self._refresh_keys()
        self.observations.refresh()
        if now >= self._sweep_at:
            if self.sessions is not None:
                self.sessions.delete_old()
            more = delete_old_traces(self._database, self.settings.retention_days, self._clock.now())
            self._sweep_at = now + (0 if more else _SWEEP_S)
        return True

    def _refresh_keys(self) -> None:
        """Load the keys if they changed.

        If the database was emptied, replaced or deleted, the old keys are no longer accepted.
        """
        try:
            self._database.reopen_if_replaced()
            with self._database.read() as connection:
                version = keys_version(connection)
                if version == self._version:
                    return
                keys = all_keys(connection)
                self.key_cache.load(keys)
                self._version = version
                if any(key.needs_reservation for key in keys):
                    with self._database.read():  # opens a second connection, for the thread of the budgets
                        pass
        except StoreError as error:
            if error.at_fault == "schema":  # the database answers, but has no keys of ODAR
                if not self.key_cache.lost:
                    LOG.error("%s; every request that needs a key is refused until the store is back", error)
                self.key_cache.mark_lost()
                self._version = None
            raise


class ResponseArchive:
    """Conversations of /v1/responses, which clients continue by id. Call it outside the event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, response_id: str, key_id: str, items: str, previous: str | None = None) -> None:
        """Store the items since the response `previous`, a JSON list that ends with this response."""
        day = datetime.now(UTC).date().isoformat()
        row = {"id": response_id, "key_id": key_id, "day": day, "previous": previous, "added": items}
        with self._database.write() as connection:
            connection.execute(insert(responses).values(**row))
            if previous is not None:  # the whole conversation is as old as its last response
                chain = select(_chain(previous, key_id).c.id)
                connection.execute(
                    update(responses).where(responses.c.id.in_(chain), responses.c.day < day).values(day=day)
                )

    def items(self, response_id: str, key_id: str) -> str | None:
        """The conversation up to a stored response of this key, a JSON list, or None if it is not stored."""
        chain = _chain(response_id, key_id)
        query = select(chain.c.previous, responses.c.added).join(responses, responses.c.id == chain.c.id)
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(chain.c.depth.desc())).all()
        if not rows or rows[0].previous is not None:
            return None
        return f"[{','.join(row.added[1:-1] for row in rows if row.added != '[]')}]"


def _chain(response_id: str, key_id: str) -> CTE:
    """The ids of a stored response and of those that it continues; `depth` counts from the last."""
    c = responses.c
    last = select(c.id, c.previous, literal(0).label("depth")).where(c.id == response_id, c.key_id == key_id)
    chain = last.cte("chain", recursive=True)
    earlier = select(c.id, c.previous, chain.c.depth + 1).where(c.id == chain.c.previous, c.key_id == key_id)
    return chain.union_all(earlier)
