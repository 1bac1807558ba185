from __future__ import annotations

import asyncio
import sqlite3
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import event, select, text

from odar.errors import StoreError
from odar.traces.database import Database, traces
from odar.traces.record import Record, Unanswered
from odar.traces.writer import TraceWriter
from odar.types import NO_USAGE, Query, Spend, Usage
from support.traces import make_record
from support.waiting import until


def ids_in(store) -> set[str]:
    with store._database.read() as connection:
        return set(connection.scalars(select(traces.c.id)))


async def test_records_are_stored_after_a_flush(opened, url):
    store = opened(url)
    records = [make_record() for _ in range(450)]  # more than two batches
    assert all(store.put(record) for record in records)
    assert await store.flush()
    assert ids_in(store) == {record.trace.id for record in records}
    health = store.health()
    assert (health.ok, health.queued, health.stored, health.dropped, health.error) == (True, 0, 450, 0, None)


async def test_records_are_stored_after_the_flush_interval(opened, sqlite_url):
    store = opened(sqlite_url, flush_interval_s=0.05)
    store.put(make_record(id="ab"))
    await until(lambda: ids_in(store) == {"ab"})


async def test_closing_writes_queued_records_and_rejects_new_ones(opened, url):
    store = opened(url, flush_interval_s=60)
    records = [make_record() for _ in range(300)]
    for record in records:
        store.put(record)
    assert await store.close()
    assert not store.put(make_record())
    assert store.health().dropped == 1
    assert await store.flush()  # nothing waits
    assert ids_in(opened(url)) == {record.trace.id for record in records}


async def test_budgets_and_traces_are_closed_together(opened, sqlite_url, monkeypatch):
    """Closing both one after the other could take twice the timeout."""
    store = opened(sqlite_url)
    both = threading.Barrier(2, timeout=20)
    for part in (store.budgets, store._writer):
        monkeypatch.setattr(part, "close", lambda timeout_s, close=part.close: (both.wait(), close(timeout_s))[1])
    assert await store.close()


async def test_a_repeated_record_is_stored_once(opened, url):
    store = opened(url)
    record = make_record()
    store.put(record)
    store.put(record)
    await store.flush()
    store.put(record)
    assert await store.flush()
    assert ids_in(store) == {record.trace.id}


async def test_a_full_queue_drops_new_records_and_counts_them(opened, sqlite_url, monkeypatch):
    monkeypatch.setattr("odar.traces.writer.MAX_QUEUED", 10)
    store = opened(sqlite_url, flush_interval_s=60)
    lock = sqlite3.connect(sqlite_url, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")  # nothing can be written now
    records = [make_record() for _ in range(25)]
    accepted = [store.put(record) for record in records]
    assert accepted == [True] * 10 + [False] * 15
    assert store.health().dropped == 15
    assert not store.health().ok
    lock.execute("COMMIT")
    lock.close()
    assert await store.flush()
    assert ids_in(store) == {record.trace.id for record in records[:10]}
    assert store.health().ok


async def test_the_queue_is_limited_in_bytes(opened, sqlite_url, monkeypatch):
    monkeypatch.setattr("odar.traces.writer.MAX_QUEUED_BYTES", 1 << 20)
    store = opened(sqlite_url, flush_interval_s=60)
    big = "word " * 2000  # 2 × 2000 tokens: some 600 kB
    assert store.put(make_record(text=big))
    assert not store.put(make_record(text=big))
    assert store.put(make_record())
    await store.flush()
    assert store.put(make_record(text=big))


async def test_large_records_of_one_key_push_out_no_others(opened, sqlite_url, monkeypatch):
    monkeypatch.setattr("odar.traces.writer.MAX_QUEUED_BYTES", 3 << 20)
    store = opened(sqlite_url, flush_interval_s=60)
    big = "word " * 2000
    accepted = [store.put(replace(make_record(text=big), key_id="greedy")) for _ in range(10)]
    assert 0 < sum(accepted) < 4
    assert store.put(replace(make_record(text=big), key_id="modest"))
    await store.flush()
    assert store.put(replace(make_record(text=big), key_id="greedy"))


class TestDatabaseFailures:
    """While the database fails, records stay in the queue, nothing is raised, and health reports the error."""

    async def check(self, store, break_, mend, word):
        store.put(make_record(id="before"))
        assert await store.flush()
        break_()
        records = [make_record() for _ in range(5)]
        assert all(store.put(record) for record in records)
        assert not await store.flush()
        health = store.health()
        assert (health.ok, health.queued) == (False, 5)
        assert word in health.error
        assert "\n" not in health.error
        mend()
        await until(lambda: store.health().ok)  # by itself
        assert await store.flush()
        assert ids_in(store) == {"before", *(record.trace.id for record in records)}
        assert store.health().dropped == 0

    async def test_a_full_disk(self, opened, sqlite_url):
        store = opened(sqlite_url, flush_interval_s=0.05)

        def limit(pages):
            def apply(connection, record, proxy):
                connection.execute(f"PRAGMA max_page_count = {pages}")

            return apply

        full, roomy = limit(1), limit(1 << 30)
        pool = store._database.engine.pool

        def mend():
            event.remove(pool, "checkout", full)
            event.listen(pool, "checkout", roomy)

        await self.check(store, lambda: event.listen(pool, "checkout", full), mend, "database or disk is full")

    async def test_a_locked_database(self, opened, sqlite_url, monkeypatch):
        monkeypatch.setattr("odar.serving.store.Database", partial(Database, lock_timeout_s=0.1))
        store = opened(sqlite_url, flush_interval_s=0.05)
        lock = sqlite3.connect(sqlite_url, isolation_level=None)
        await self.check(
            store, lambda: lock.execute("BEGIN IMMEDIATE"), lambda: lock.execute("COMMIT"), "database is locked"
        )
        lock.close()

    async def test_a_database_that_became_read_only(self, opened, sqlite_url):
        def only(connection, record, proxy):
            connection.execute("PRAGMA query_only = 1")

        def again(connection, record, proxy):
            connection.execute("PRAGMA query_only = 0")

        store = opened(sqlite_url, flush_interval_s=0.05)
        pool = store._database.engine.pool

        def mend():
            event.remove(pool, "checkout", only)
            event.listen(pool, "checkout", again)

        await self.check(store, lambda: event.listen(pool, "checkout", only), mend, "readonly database")

    async def test_a_server_that_closes_and_refuses_connections(self, opened, postgres_server):
        import psycopg

        admin = psycopg.connect(postgres_server, autocommit=True)
        admin.execute("CREATE DATABASE fickle")
        store = opened(postgres_server.replace("/postgres?", "/fickle?"), flush_interval_s=0.05)

        def break_():
            admin.execute("ALTER DATABASE fickle ALLOW_CONNECTIONS false")
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'fickle'")

        def mend():
            admin.execute("ALTER DATABASE fickle ALLOW_CONNECTIONS true")

        await self.check(store, break_, mend, "not currently accepting connections")
        admin.close()


async def test_a_batch_retried_after_its_commit_is_counted_once(opened, sqlite_url):
    store = opened(sqlite_url, flush_interval_s=0.05)
    insert, tries = store._writer._write_rows, []

    def lost(rows):
        stored = insert(rows)
        tries.append(len(rows))
        if len(tries) == 1:
            raise StoreError("the connection broke off")
        return stored

    store._writer._write_rows = lost
    store.put(make_record(id="ab", key_id="key_1", cost=1.0))
    await until(lambda: len(tries) == 2)
    with store._database.read() as connection:
        assert connection.execute(text("SELECT requests, cost_usd FROM spending")).one() == (1, 1.0)


@pytest.mark.parametrize(
    "bad",
    [
        Record(Query("?"), Unanswered(id="bad", started_at="yesterday", profile="p")),
        Record(Query("?"), make_record(id="bad").trace, endpoint={("x",): 1}),
        Record(
            Query("?"),
            Unanswered(id="bad", started_at="2026-11-15", profile="p", spend=Spend(2**80, NO_USAGE, 0.0, 0.0)),
        ),
    ],
    ids=["no time", "not JSON", "too large"],
)
async def test_a_bad_record_does_not_block_the_others(opened, url, bad):
    store = opened(url)
    for record in (make_record(id="one"), bad, make_record(id="two")):
        assert store.put(record)
    assert await store.flush()
    assert ids_in(store) == {"one", "two"}
    health = store.health()
    assert (health.rejected, health.ok) == (1, True)


async def test_invalid_characters_and_numbers_can_be_stored(opened, url):
    store = opened(url, content=True)
    odd = "a\0b\ud800c 漢字 😀"
    record = make_record(odd, text=odd, cost=float("nan"), seconds=float("inf"), difficulty=float("nan"))
    huge = Unanswered(
        id="huge", started_at="2026-11-15T00:00:00Z", profile="p", spend=Spend(0, Usage(2**80, 0, 1, 0), None, 0.0)
    )
    store.put(record)
    store.put(Record(Query("?"), huge))
    assert await store.flush()
    stored = await store.get(record.trace.id)
    assert stored["document"]["query"]["text"] == odd
    assert (stored["cost_usd"], stored["difficulty"]) == (None, None)
    assert (await store.get("huge"))["tokens_in"] is None


async def test_the_writer_thread_survives_failing_maintenance(database, settings_of, quick_flush):
    def fails() -> bool:
        raise RuntimeError("no luck")

    writer = TraceWriter(database, settings_of("x").store, maintain=fails)
    await until(lambda: writer.health().error is not None)
    assert writer.health().error == "no luck"
    writer.put(make_record())
    assert await asyncio.wrap_future(writer.flush())
    assert writer.close(5)


async def test_concurrent_threads_and_stores_lose_no_record(opened, url):
    stores = [opened(url, flush_interval_s=0.02) for _ in range(2)]
    records = [[make_record(key_id="key_1", cost=0.5) for _ in range(100)] for _ in range(6)]

    def work(index):
        for record in records[index]:
            stores[index % 2].put(record)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all([await store.flush() for store in stores])
    assert len(ids_in(stores[0])) == 600
    with stores[0]._database.read() as connection:
        row = connection.execute(text("SELECT sum(requests), sum(cost_usd) FROM spending")).one()
    assert tuple(row) == (600, 300.0)


@pytest.mark.parametrize("content", [False, True])
async def test_without_content_no_text_is_in_the_files(opened, sqlite_url, content):
    store = opened(sqlite_url, content=content, flush_interval_s=0.05)
    phrase = "zanzibar marmalade"
    failed = Unanswered(id="f", started_at="2026-11-15", profile="p")
    message = f"HTTP 400: cannot parse '{phrase}'"
    store.put(
        make_record(
            f"Where is my {phrase} today?", text=f"Your {phrase} is gone. Answer: gone", cue=f"keywords: {phrase}"
        )
    )
    store.put(Record(Query(f"Where is my {phrase} today?"), failed, error=message))
    assert await store.flush()
    raw = b"".join(path.read_bytes() for path in Path(sqlite_url).parent.iterdir())
    assert (b"zanzibar" in raw) == content
    assert (b"marmalade" in raw) == content
