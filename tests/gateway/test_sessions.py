"""Conversations that the gateway recognises as sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from odar.conversation import Message, Options, ToolCall
from odar.gateway.sessions import SessionTable
from odar.providers.base import Completion, Request
from odar.types import Assignment, Decision, Estimate, Path, Query, SessionUse, Token, Usage
from support.scripted import ScriptedProvider

CHAT = "/v1/chat/completions"
FIRST = Message("user", "Fix the parser.")
TOOL = {"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}


def decided(table: SessionTable, messages: Sequence[Message], **options: Any) -> SessionUse:
    """Answer a request of a conversation with the slow agent."""
    opened = table.open(Query.from_messages(tuple(messages), Options(user=options.pop("user", None))), **options)
    decision = Decision(Path.MEDIUM, Estimate(0.5, "t"), 5, "", Assignment(fast="q", slow="d"))
    settled = opened.request.settle(decision, [], {})
    table.close(opened, settled, [])
    assert settled.session is not None
    return settled.session


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_conversation_is_recognised_by_its_earlier_turns() -> None:
    table = SessionTable(10, 60, Clock())
    step = [FIRST, Message("assistant", "as the client likes"), Message("tool", "ok", tool_call_id="1")]
    assert decided(table, [FIRST]).requests == 1
    assert decided(table, step).requests == 2
    assert decided(table, [*step, Message("assistant", "x"), Message("user", "Thanks")]).requests == 3
    other = [Message("user", "Something else"), *step[1:]]
    assert decided(table, other).requests == 1


def test_keys_users_and_named_sessions_are_kept_apart() -> None:
    table = SessionTable(10, 60, Clock())
    follow = [FIRST, Message("assistant", "a"), Message("user", "b")]
    decided(table, [FIRST], key_id="k1", user="ann")
    assert decided(table, follow, key_id="k2", user="ann").requests == 1
    assert decided(table, follow, key_id="k1", user="bob").requests == 1
    assert decided(table, follow, key_id="k1", user="ann").requests == 2
    named = [(b"x-session-id", b"s1")]
    decided(table, [FIRST], headers=named)
    assert decided(table, [Message("user", "After compaction")], headers=named).requests == 2
    assert decided(table, [FIRST], headers=[(b"x-session-id", b"s2")]).requests == 1


def test_the_session_table_is_bounded_and_expires() -> None:
    clock = Clock()
    table = SessionTable(3, 60, clock)
    for name in range(5):
        decided(table, [FIRST], headers=[(b"x-session-id", str(name).encode())])
    assert len(table) == 3
    assert decided(table, [FIRST], headers=[(b"x-session-id", b"4")]).requests == 2
    clock.now = 61
    assert decided(table, [FIRST], headers=[(b"x-session-id", b"4")]).requests == 1


def agents(fast_logprob: list[float]) -> dict[str, ScriptedProvider]:
    """Two agents that call a tool until there are three results; the list has the confidence of the fast one."""

    def script(logprob: Any) -> Any:
        def answer(request: Request, index: int) -> list[Completion]:
            results = sum(message.role == "tool" for message in request.messages)
            tokens = (Token("x", logprob(index)),)
            if results >= 3:
                return [Completion("It is fixed now.", tokens)] * request.n
            call = ToolCall(f"c{results}", "run", f'{{"step": {results}}}')
            return [Completion("", tokens, "tool_calls", (call,))] * request.n

        return answer

    usage = Usage(4000, 3000, 20, 0)
    return {
        "f": ScriptedProvider(script(lambda i: fast_logprob[min(i, len(fast_logprob) - 1)]), "f", usage=usage),
        "s": ScriptedProvider(script(lambda i: -0.1), "s", usage=usage),
    }


async def loop(start: Any, pair: dict[str, ScriptedProvider], **settings: Any) -> list[dict[str, Any]]:
    """Return the `odar` objects of all requests of an agent loop."""
    live = await start(app_options={"providers": pair}, **settings)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Fix the failing test of the parser, please."}]
    told = []
    while True:
        status, _, body = await live.post(CHAT, {"model": "odar", "messages": messages, "tools": [TOOL]})
        assert status == 200, body
        told.append(body["odar"])
        message = body["choices"][0]["message"]
        if not message.get("tool_calls"):
            break
        messages.append({"role": "assistant", "content": "", "tool_calls": message["tool_calls"]})
        messages.append({"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "1 failed"})
    text = live.service.metrics.text().decode()
    assert 'odar_session_requests_total{event="start"} 1.0' in text or not settings.get("gateway__sessions", 1)
    return told


async def test_the_slow_agent_continues_a_loop_alone(start: Any) -> None:
    pair = agents([-0.1])
    told = await loop(start, pair, routing__tau1=0.0, routing__tau2=1.0, routing__mode="prior")
    assert [each["session"]["event"] for each in told] == ["start", "stay", "stay", "stay"]
    assert [each["calls"] for each in told] == [1, 1, 1, 1]
    assert {each["session"]["agent"] for each in told} == {"slow"}
    assert told[-1]["session"] == {
        "event": "stay", "agent": "slow", "requests": 4, "switches": 0, "cached_tokens": 3000,
    }  # fmt: skip
    assert len(pair["f"].requests) == 0


async def test_a_loop_of_the_fast_agent_escalates_once(start: Any) -> None:
    pair = agents([-0.001, -6.0, -6.0, -6.0])
    told = await loop(start, pair, routing__tau1=0.6, routing__tau2=0.95, routing__mode="posterior")
    events = [each["session"]["event"] for each in told]
    assert events.count("escalate") == 1
    assert told[-1]["session"]["switches"] == len([e for e in events if e in ("escalate", "return")])


async def test_without_sessions_every_request_is_routed_by_itself(start: Any) -> None:
    told = await loop(
        start, agents([-0.1]), routing__tau1=0.0, routing__tau2=1.0, routing__mode="prior", gateway__sessions=0
    )
    assert [each["calls"] for each in told] == [2, 2, 2, 2]
    assert all("session" not in each for each in told)
