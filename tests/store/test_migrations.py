from __future__ import annotations

import sqlite3

import pytest
from sqlalchemy import text

from odar.errors import StoreError
from odar.store import schema
from odar.store.archive import Archive
from odar.store.database import Database
from odar.store.schema import MIGRATIONS, migrate, schema_version, up_to_date
from odar.store.store import open_store
from odar.store.writer import make_row, write_rows
from support.traces import make_record


def test_an_empty_database_goes_through_every_step_and_a_full_one_through_none(database):
    with database.write() as connection:
        assert schema_version(connection) == len(MIGRATIONS)
        assert up_to_date(connection)
        assert migrate(connection, "x") == 0


def test_each_step_alone_leaves_a_database_that_the_next_can_go_on_from(url, settings_of, monkeypatch):
    """As with users who skip versions, and with those who do not."""
    for count in range(1, len(MIGRATIONS) + 1):
        monkeypatch.setattr(schema, "MIGRATIONS", MIGRATIONS[:count])
        database = Database(settings_of(url).store)
        with database.read() as connection:
            assert schema_version(connection) == count
        database.close()
    database = Database(settings_of(url).store)
    with database.write() as connection:
        write_rows(connection, [make_row(make_record(id="t"), content=True)])
    assert Archive(database).get("t")["id"] == "t"
    database.close()


def test_a_table_of_somebody_elses_is_left_alone(tmp_path, settings_of):
    file = tmp_path / "other.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE meta (name TEXT, value TEXT)")
        connection.execute("INSERT INTO meta VALUES ('owner', 'somebody else')")
    connection.close()
    with pytest.raises(StoreError, match=r"a table `meta` that is not odar's: point store\.url elsewhere"):
        Database(settings_of(str(file)).store)
    connection = sqlite3.connect(file)
    assert connection.execute("SELECT * FROM meta").fetchall() == [("owner", "somebody else")]
    assert [name for (name,) in connection.execute("SELECT name FROM sqlite_master")] == ["meta"]
    connection.close()


def test_a_store_of_the_future_is_refused_and_not_touched(url, settings_of):
    database = Database(settings_of(url).store)
    with database.write() as connection:
        connection.execute(text("UPDATE meta SET value = 99 WHERE name = 'schema'"))
    database.close()
    with pytest.raises(StoreError, match=f"has schema 99; this odar knows {len(MIGRATIONS)}: upgrade odar"):
        Database(settings_of(url).store)
    with pytest.raises(StoreError, match="upgrade odar"):
        open_store(settings_of(url))


async def test_a_record_whose_start_is_no_time_is_rejected_and_said(opened, url):
    store = opened(url)
    store.put(make_record(id="bad", started_at="yesterday", key_id="key_1"))
    store.put(make_record(id="good"))
    await store.flush()
    assert [trace["id"] for trace in (await store.page()).traces] == ["good"]
    health = store.health()
    assert (health.rejected, health.ok) == (1, True)


def test_a_store_that_cannot_be_read_is_closed_again(sqlite_url, settings_of, monkeypatch):
    from odar.store import store as module

    closed: list[bool] = []
    whole = Database.close
    monkeypatch.setattr(Database, "close", lambda self: (closed.append(True), whole(self))[1])
    monkeypatch.setattr(module, "newest_trace", lambda connection: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        open_store(settings_of(sqlite_url))
    assert closed == [True]
