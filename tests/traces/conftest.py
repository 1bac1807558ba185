"""Databases and stores."""

from __future__ import annotations

from support.postgres import postgres_server, postgres_url
from support.stores import database, opened, quick_flush, settings_of, sqlite_url, url

__all__ = [
    "database",
    "opened",
    "postgres_server",
    "postgres_url",
    "quick_flush",
    "settings_of",
    "sqlite_url",
    "url",
]
