"""The gateway's own fixtures: a live server in front of upstreams that do what tests tell them to."""

from __future__ import annotations

from support.live_gateway import live, slow, start, up

__all__ = ["live", "slow", "start", "up"]
