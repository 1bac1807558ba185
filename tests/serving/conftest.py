"""A live gateway on its own port, with scripted upstreams."""

from __future__ import annotations

from support.live_gateway import live, slow, start, up
from support.postgres import postgres_server, postgres_url
from support.stores import database, opened, quick_flush, settings_of, sqlite_url, url

__all__ = [
    "database",
    "live",
    "opened",
    "postgres_server",
    "postgres_url",
    "quick_flush",
    "settings_of",
    "slow",
    "sqlite_url",
    "start",
    "up",
    "url",
]
