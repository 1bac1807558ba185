from __future__ import annotations

import asyncio
import sqlite3
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import text

from odar.serving import store as store_module
from odar.traces import retention
from odar.traces.filter import Filter
from odar.traces.writer import make_row, write_rows
from support.traces import ago, make_record
from support.waiting import until


async def test_old_traces_are_deleted_with_their_rows_but_not_spending(opened, url, monkeypatch):
    monkeypatch.setattr(retention, "BATCH", 3)
    store = opened(url, retention_days=0, content=True)
    for index in range(7):
        store.put(make_record(id=f"old{index}", started_at=ago(days=31), key_id="key_1"))
    store.put(make_record(id="new", started_at=ago(days=29)))
    await store.flush()
    await store.mark("old0", True)
    await store.mark("new", True)
    sweeps = 1
    while retention.delete_old_traces(store._database, 30, datetime.now(UTC)):
        sweeps += 1
    assert sweeps == 3
    assert [trace["id"] for trace in store.archive.page()["traces"]] == ["new"]
    with store._database.read() as connection:
        for table, rows in (("documents", 1), ("spending", 1)):
            assert connection.execute(text(f"SELECT count(*) FROM {table}")).scalar() == rows


async def test_retention_runs_automatically(opened, url):
    store = opened(url, retention_days=0)
    store.put(make_record(started_at=ago(days=3)))
    store.put(make_record(id="new"))
    await store.close()
    store = opened(url, retention_days=2, flush_interval_s=0.05)
    async with asyncio.timeout(60):
        while [trace["id"] for trace in store.archive.page(Filter())["traces"]] != ["new"]:
            await asyncio.sleep(0.02)


async def test_zero_days_keep_all_traces(opened, sqlite_url):
    store = opened(sqlite_url, retention_days=0)
    store.put(make_record(started_at="1999-12-31"))
    await store.flush()
    assert retention.delete_old_traces(store._database, 0, datetime.now(UTC)) is False
    assert len(store.archive.page()["traces"]) == 1


async def test_deleted_text_is_not_in_the_file(opened, sqlite_url):
    store = opened(sqlite_url, content=True, retention_days=0)
    store.put(make_record("Where is zanzibar?", started_at=ago(days=9)))
    await store.flush()
    assert b"zanzibar" in b"".join(path.read_bytes() for path in Path(sqlite_url).parent.iterdir())
    assert not retention.delete_old_traces(store._database, 5, datetime.now(UTC))
    await store.close()
    sqlite3.connect(sqlite_url).execute("PRAGMA wal_checkpoint(TRUNCATE)").connection.close()
    assert b"zanzibar" not in Path(sqlite_url).read_bytes()


async def _swept(store) -> None:
    """Wait until the store has looked for old traces once more."""
    await _done(store)  # a delete_old_traces that the store started itself, perhaps with another clock
    store._sweep_at = store._refresh_at = 0.0
    await _done(store)


async def _done(store) -> None:
    await until(lambda: store._sweep_at != 0.0)


@pytest.mark.parametrize("days_ahead", [31, 400, 36_500])
async def test_a_clock_jump_does_not_delete_recent_traces(opened, url, monkeypatch, days_ahead):
    store = opened(url, retention_days=30, flush_interval_s=0.02)
    for days in (0, 1, 29):
        store.put(make_record(id=f"{days} days old", started_at=ago(days=days)))
    store.put(make_record(id="too old", started_at=ago(days=32)))
    await store.flush()
    monkeypatch.setattr(store._clock, "_wall", lambda: time.time() + days_ahead * 86_400)
    await _swept(store)
    kept = {trace["id"] for trace in store.archive.page()["traces"]}
    assert kept == {
        "0 days old",
        "1 days old",
        "29 days old",
    }  # only the one that is due by the true time is deleted


async def test_a_wrong_clock_at_startup_deletes_nothing(opened, url, monkeypatch):
    store = opened(url, retention_days=30)
    store.put(make_record(id="now"))
    store.put(make_record(id="before", started_at=ago(days=20)))
    await store.close()
    true = time.time
    monkeypatch.setattr(
        store_module, "TrustedClock", lambda newest: retention.TrustedClock(newest, lambda: true() + 9e6)
    )
    store = opened(url, retention_days=30, flush_interval_s=0.02)
    await _swept(store)
    assert len(store.archive.page()["traces"]) == 2


async def test_a_retention_beyond_the_first_date_keeps_all_traces(opened, sqlite_url):
    store = opened(sqlite_url, retention_days=10**9, flush_interval_s=0.02)
    store.put(make_record(started_at="1970-01-01"))
    await store.flush()
    await _swept(store)
    assert store.health().ok
    assert len(store.archive.page()["traces"]) == 1


@pytest.mark.parametrize("hour", [0, 23])
async def test_whole_days_by_utc_are_kept(opened, sqlite_url, hour):
    store = opened(sqlite_url, retention_days=0)
    for started_at in ("2026-10-16T23:59:59Z", "2026-10-17T00:00:00Z"):
        store.put(make_record(started_at=started_at))
    await store.flush()
    retention.delete_old_traces(store._database, 30, datetime(2026, 11, 16, hour, 59, tzinfo=UTC))
    assert [trace["started_at"][:10] for trace in store.archive.page()["traces"]] == ["2026-10-17"]


def test_the_newest_trace_is_found_by_its_time(database):
    with database.read() as connection:
        assert retention.newest_trace(connection) is None
    for moment in ("2026-11-15T23:00:00Z", "2026-11-16T01:00:00+02:00", "2026-11-14"):
        with database.write() as connection:
            write_rows(connection, [make_row(make_record(started_at=moment), content=False)])
    with database.read() as connection:
        assert retention.newest_trace(connection) == datetime(2026, 11, 15, 23, tzinfo=UTC).timestamp()
