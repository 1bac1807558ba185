"""The replay of captured agent sessions."""

from __future__ import annotations

import asyncio
from pathlib import Path

from replay_sessions import _common, replay, sessions  # scripts is on the path

FILE = Path(__file__).parents[2] / "docs" / "data" / "agent-sessions.jsonl.gz"


def test_the_file_has_conversations_of_several_clients() -> None:
    found = list(sessions(FILE))
    assert len(found) >= 30
    assert len({session["client"] for session in found}) >= 6
    loops = [s for s in found if any(request["calls"] for request in s["requests"])]
    assert len(loops) >= 30
    for session in found:
        name = "input" if session["protocol"] == "responses" else "messages"
        lengths = [len(request["body"][name]) for request in session["requests"]]
        assert lengths[-1] == max(lengths)


def test_routing_costs_less_than_the_slow_agent_and_a_session_switches_less() -> None:
    found = [s for s in sessions(FILE) if s["client"] == "pydantic-ai"]
    slow, alone, together = (
        asyncio.run(replay(way, found, "gpt-5.4-nano", "gpt-5.4"))
        for way in ("always slow", "per request", "per session")
    )
    assert alone.usd < slow.usd and together.usd <= slow.usd
    assert together.switches <= alone.switches
    assert together.calls == alone.calls == slow.calls, "agents take one call a request"


def test_the_common_prefix_is_found() -> None:
    assert [_common("abc", other) for other in ("", "abd", "abc", "abcd", "x")] == [0, 2, 3, 3, 0]
