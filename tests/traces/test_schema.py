from __future__ import annotations

import sqlite3

import pytest
from sqlalchemy import text

from odar.errors import StoreError
from odar.serving.store import Store
from odar.traces.database import VERSION, Database, create_tables, schema_version


def test_tables_are_created_once(database):
    with database.write() as connection:
        assert schema_version(connection) == VERSION
        create_tables(connection, "x")
        assert schema_version(connection) == VERSION


def test_tables_of_other_programs_are_unchanged(tmp_path, settings_of):
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


@pytest.mark.parametrize(("version", "remedy"), [(99, "upgrade odar"), (1, "move it away")])
def test_a_store_of_another_version_is_rejected_and_unchanged(url, settings_of, version, remedy):
    database = Database(settings_of(url).store)
    with database.write() as connection:
        connection.execute(text("UPDATE meta SET value = :v WHERE name = 'schema'"), {"v": version})
    database.close()
    with pytest.raises(StoreError, match=f"has schema {version}; this odar knows {VERSION}: {remedy}"):
        Database(settings_of(url).store)
    with pytest.raises(StoreError, match=remedy):
        Store(settings_of(url))


def test_a_store_that_cannot_be_read_is_closed(sqlite_url, settings_of, monkeypatch):
    from odar.serving import store as module

    closed: list[bool] = []
    whole = Database.close
    monkeypatch.setattr(Database, "close", lambda self: (closed.append(True), whole(self))[1])
    monkeypatch.setattr(module, "newest_trace", lambda connection: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Store(settings_of(sqlite_url))
    assert closed == [True]
