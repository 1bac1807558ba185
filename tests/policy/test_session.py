"""Conversations: cached prompts, the agent of a tool loop, and the state after an answer."""

from __future__ import annotations

from dataclasses import replace

from odar.conversation import Message
from odar.policy.session import CACHE_S, Session
from odar.types import Call, Query, Step, Usage
from support.traces import make_answer

TURN = Query.from_messages((Message("user", "x" * 4000), Message("assistant", "y"), Message("user", "And now?")))
STEP = Query.from_messages((Message("user", "x" * 4000), Message("assistant", ""), Message("tool", "42")))


def call(agent: str, tokens: int, *, cached: int | None = None, error: str | None = None) -> Call:
    step = Step.ANSWER if agent == "fast" else Step.SOLVE
    return Call(step, agent, "p", "m", 1, Usage(tokens, cached, 10), 0.0, 1.0, error=error)


def test_what_an_agent_has_read_is_cached_for_some_minutes():
    session = Session(requests=1, cached={"fast": (800, 0.0), "slow": (9_000, 0.0)})
    request = session.request(TURN, CACHE_S - 1)
    assert request.cached == {"fast": 800, "slow": request.tokens}
    assert not session.request(TURN, CACHE_S).cached
    assert not session.request(TURN, 1.0, b"another").cached


def test_a_tool_result_continues_the_loop_of_a_session_that_has_begun():
    assert Session(requests=1).request(STEP, 0.0).in_tool_loop
    assert not Session(requests=1).request(TURN, 0.0).in_tool_loop
    assert not Session().request(STEP, 0.0).in_tool_loop


def test_events_of_a_conversation():
    start = Session().request(TURN, 0.0)
    assert start.use("slow", []).event == "start"
    fast = Session("fast", requests=2, switches=1).request(TURN, 0.0)
    assert fast.use("fast", []).event == "stay"
    moved = fast.use("slow", [call("fast", 900, cached=700), call("slow", 900)])
    assert (moved.event, moved.requests, moved.switches, moved.cached_tokens) == ("escalate", 3, 2, 700)
    assert Session("slow", requests=1).request(TURN, 0.0).use("fast", []).event == "return"


def test_the_state_after_an_answer():
    request = Session("fast", requests=1, cached={"fast": (500, 0.0)}).request(TURN, 1.0)
    calls = [call("fast", 900, error="HTTP 500"), call("slow", 950)]
    trace = make_answer().trace
    plan = replace(
        trace.plan,
        session=request.use("slow", calls),
        assignment=replace(trace.plan.assignment, models={"fast": "a", "slow": "b"}),
    )
    after = request.after(replace(trace, plan=plan, calls=tuple(calls)), 7.0)
    assert (after.agent, after.requests, after.switches) == ("slow", 2, 1)
    assert after.models == {"fast": "a", "slow": "b"}
    assert after.cached == {"fast": (500, 0.0), "slow": (950, 7.0)}, "a failed call has read nothing"
    marked = replace(calls[1], usage=Usage(950, 600, 10, written=300))
    for usage, kept in ((calls[1], 0), (marked, 900)):  # a provider that keeps what is marked, and no more
        told = request.after(replace(trace, plan=plan, calls=(usage,)), 7.0, explicit={"p"})
        assert told.cached["slow"] == (kept, 7.0)
