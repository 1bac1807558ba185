"""Fixtures that open databases and stores, once with SQLite and once with PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odar.config import load_settings
from odar.serving.store import Store
from odar.settings import Settings
from odar.traces.database import Database


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path) -> str:
    """The URL of an empty database; tests run once with each kind."""
    return str(tmp_path / "odar.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def sqlite_url(tmp_path) -> str:
    return str(tmp_path / "odar.db")


def settings_for(url: str, **store: object) -> Settings:
    return load_settings("tiny", config="/dev/null", environ={}, store={"url": url, **store})


@pytest.fixture
def settings_of():
    return settings_for


@pytest.fixture
def quick_flush(monkeypatch) -> None:
    """Traces are written at once, not after half a second."""
    for module in ("traces.writer", "serving.store"):
        monkeypatch.setattr(f"odar.{module}.FLUSH_INTERVAL_S", 0.05)


@pytest.fixture
async def opened(monkeypatch):
    """Return a function that opens stores; they are closed at the end. `flush_interval_s` applies to all of them."""
    stores: list[Store] = []

    def open_(url: str, *, flush_interval_s: float | None = None, **options: object) -> Store:
        if flush_interval_s is not None:
            monkeypatch.setattr("odar.traces.writer.FLUSH_INTERVAL_S", flush_interval_s)
        stores.append(Store(settings_for(url, **options)))
        return stores[-1]

    yield open_
    for store in stores:
        await store.close(timeout_s=1)


@pytest.fixture
def database(url) -> Iterator[Database]:
    database = Database(settings_for(url).store)
    yield database
    database.close()
