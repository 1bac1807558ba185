"""The fixtures of tests/serving: a live gateway with scripted upstreams."""

from __future__ import annotations

from support.live_gateway import live, slow, start, up

__all__ = ["live", "slow", "start", "up"]
