"""A live gateway on its own port, with scripted upstreams."""

from __future__ import annotations

from support.live_gateway import live, slow, start, up
from support.postgres import postgres_server, postgres_url

__all__ = ["live", "postgres_server", "postgres_url", "slow", "start", "up"]
