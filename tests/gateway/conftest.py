"""A live gateway on a port of its own, in front of upstreams that do what tests tell them to."""

from __future__ import annotations

from support.live_gateway import live, slow, start, up
from support.postgres import postgres_server, postgres_url

__all__ = ["live", "postgres_server", "postgres_url", "slow", "start", "up"]
