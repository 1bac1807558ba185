from __future__ import annotations

import pytest

from odar.cli import ask
from odar.cli.ask import preload_store, record_trace
from odar.traces.database import Database
from odar.types import Query
from support.traces import make_answer

QUERY = Query("Where is zanzibar?")


def test_a_disabled_store_creates_no_file(tmp_path, settings_of):
    settings = settings_of(str(tmp_path / "odar.db"), enabled=False)
    assert record_trace(make_answer(), QUERY, settings) is None
    preload_store(settings)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("/proc/nowhere/odar.db", "cannot be made"),
        ("mysql://host/odar", "has the scheme 'mysql'"),
        ("postgresql://odar:secret-word@127.0.0.1:9/odar", "127.0.0.1"),
    ],
)
def test_a_store_error_is_one_line_without_a_password(url, why, settings_of):
    said = record_trace(make_answer(), QUERY, settings_of(url))
    assert why in said
    assert "\n" not in said and "secret-word" not in said


def test_an_unexpected_store_error_is_returned(sqlite_url, settings_of, monkeypatch):
    def fails(*_: object) -> None:
        raise KeyError("unforeseen\nby all")

    monkeypatch.setattr("odar.traces.writer.write_rows", fails)
    assert record_trace(make_answer(), QUERY, settings_of(sqlite_url)) == "KeyError: 'unforeseen\\nby all'"


def test_a_locked_database_is_an_error_after_a_short_timeout(sqlite_url, settings_of, monkeypatch):
    monkeypatch.setattr(ask, "_STORE_TIMEOUT_S", 0.2)
    settings = settings_of(sqlite_url)
    other = Database(settings.store)
    with other.write():
        said = record_trace(make_answer(), QUERY, settings)
    other.close()
    assert "locked" in said
    assert record_trace(make_answer(), QUERY, settings) is None
