from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy import inspect, text

from odar.errors import SettingsError, StoreError
from odar.settings import StoreSettings
from odar.traces import database as schema
from odar.traces.database import Database, database_url


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://me@host/odar", "store.url has the scheme 'mysql'; known: sqlite, postgresql"),
        ("sqlite://", "store.url names no file"),
        ("sqlite:///:memory:", "store.url names no file"),
        ("postgresql://me:secret@host:port/odar", "store.url cannot be read"),
    ],
)
def test_an_invalid_url_is_a_settings_error(url, message):
    with pytest.raises(SettingsError, match=message.replace(".", r"\.")) as raised:
        database_url(StoreSettings(url=url))
    assert "secret" not in str(raised.value)


def test_the_default_is_a_file_in_the_data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert database_url(StoreSettings()).database == str(tmp_path / "odar" / "odar.db")


def test_the_files_are_readable_only_by_their_owner(tmp_path):
    database = Database(StoreSettings(url=str(tmp_path / "new" / "odar.db")))
    with database.write() as connection:
        connection.execute(text("INSERT INTO meta VALUES ('x', 1)"))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new").iterdir()}
    database.close()
    assert set(modes.values()) == {0o600}
    assert "odar.db-wal" in modes


def test_sqlite_uses_wal_and_full_synchronous_mode(sqlite_url):
    database = Database(StoreSettings(url=sqlite_url))
    with database.read() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 2  # FULL
    database.close()


def test_failed_table_creation_is_rolled_back(url, settings_of, monkeypatch):
    store = settings_of(url).store
    monkeypatch.setattr(schema, "insert", lambda table: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Database(store)
    monkeypatch.undo()
    database = Database(store)  # finds an empty database and creates the tables
    assert set(inspect(database.engine).get_table_names()) == set(schema.metadata.tables)
    database.close()


def test_processes_that_start_together_create_one_database(url):
    code = (
        "import sys\nfrom odar.settings import StoreSettings\nfrom odar.traces.database import Database\n"
        "from odar.traces.database import schema_version\n"
        "sys.stdin.readline()\n"
        f"database = Database(StoreSettings(url={url!r}))\n"
        "with database.read() as connection: print(schema_version(connection))"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert outputs == [str(schema.VERSION)] * 3


def test_a_file_that_is_not_a_database_is_named(tmp_path):
    path = tmp_path / "odar.db"
    path.write_text("Dear diary, " * 1000)
    with pytest.raises(StoreError, match=rf"store {path}: file is not a database"):
        Database(StoreSettings(url=str(path)))


def test_a_folder_that_cannot_be_created_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot be made: .*; set store.url"):
        Database(StoreSettings(url=str(tmp_path / "file" / "odar.db")))


def test_an_unreachable_server_is_named_without_its_password():
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'odar[postgres]'")
    with pytest.raises(StoreError) as raised:
        Database(StoreSettings(url="postgresql://me:secret@127.0.0.1:1/odar"), lock_timeout_s=2)
    assert "store postgresql+psycopg://me:***@127.0.0.1:1/odar: " in str(raised.value)
    assert "secret" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_without_psycopg_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SettingsError, match=r"needs psycopg; run: pip install .*\[postgres\]'"):
        Database(StoreSettings(url="postgresql://db/odar"))


def test_opening_a_locked_file_fails_after_the_timeout(sqlite_url):
    other = sqlite3.connect(sqlite_url, isolation_level=None)
    other.execute("CREATE TABLE t (x)")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match=rf"store {sqlite_url}: database is locked"):
        Database(StoreSettings(url=sqlite_url), lock_timeout_s=0.1)
    other.execute("COMMIT")
    other.close()
    Database(StoreSettings(url=f"sqlite:///{sqlite_url}"), lock_timeout_s=0.1).close()


def test_writing_to_a_locked_database_fails_after_the_timeout(sqlite_url):
    database = Database(StoreSettings(url=sqlite_url), lock_timeout_s=0.1)
    other = sqlite3.connect(sqlite_url, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="database is locked") as raised, database.write():
        pass
    assert raised.value.at_fault == "database"
    other.execute("COMMIT")
    other.close()
    with database.write() as connection:
        connection.execute(text("INSERT INTO meta VALUES ('x', 1)"))
    database.close()
    assert Path(sqlite_url).exists()


def test_opening_waits_for_another_process_to_release_the_file(tmp_path):
    """Turning on WAL needs an exclusive lock, and SQLite does not wait for that by itself."""
    file = tmp_path / "odar.db"
    holder = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    holder.execute("CREATE TABLE other (x)")
    holder.execute("BEGIN EXCLUSIVE")
    released = threading.Timer(0.3, lambda: holder.execute("COMMIT"))
    released.start()
    try:
        database = Database(StoreSettings(url=str(file)), lock_timeout_s=20)
        with database.read() as connection:
            assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        database.close()
    finally:
        released.join()
        holder.close()
