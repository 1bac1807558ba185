from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path

from sqlalchemy import text

from odar.store import retention
from odar.store.filters import Filter
from support.traces import ago, make_record


async def test_old_traces_go_with_all_that_hangs_on_them_and_bills_stay(opened, url, monkeypatch):
    monkeypatch.setattr(retention, "BATCH", 3)
    store = opened(url, retention_days=0, content=True)
    for index in range(7):
        store.put(make_record(id=f"old{index}", started_at=ago(days=31), key_id="key_1"))
    store.put(make_record(id="new", started_at=ago(days=29)))
    await store.flush()
    await store.mark("old0", True)
    await store.mark("new", True)
    sweeps = 1
    while retention.sweep(store._database, 30):
        sweeps += 1
    assert sweeps == 3
    assert [trace["id"] for trace in (await store.page()).traces] == ["new"]
    with store._database.read() as connection:
        for table, rows in (("documents", 1), ("feedback", 1), ("spending", 1)):
            assert connection.execute(text(f"SELECT count(*) FROM {table}")).scalar() == rows


async def test_it_happens_by_itself(opened, url):
    store = opened(url, retention_days=0)
    store.put(make_record(started_at=ago(days=3)))
    await store.close()
    store = opened(url, retention_days=2, flush_interval_s=0.05)
    deadline = time.monotonic() + 10
    while (await store.page(Filter())).traces:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_zero_keeps_all(opened, sqlite_url):
    store = opened(sqlite_url, retention_days=0)
    store.put(make_record(started_at="1999-12-31"))
    await store.flush()
    assert retention.sweep(store._database, 0) is False
    assert len((await store.page()).traces) == 1


async def test_what_is_deleted_is_gone_from_the_file(opened, sqlite_url):
    store = opened(sqlite_url, content=True, retention_days=0)
    store.put(make_record("Where is zanzibar?", started_at=ago(days=9)))
    await store.flush()
    assert b"zanzibar" in b"".join(path.read_bytes() for path in Path(sqlite_url).parent.iterdir())
    assert not retention.sweep(store._database, 5)
    await store.close()
    sqlite3.connect(sqlite_url).execute("PRAGMA wal_checkpoint(TRUNCATE)").connection.close()
    assert b"zanzibar" not in Path(sqlite_url).read_bytes()
