"""Conversations that the gateway recognises as sessions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from odar.conversation import ChatParameters, Message, ToolCall
from odar.providers.base import Completion, Request
from odar.serving.sessions import SESSION_TTL_S, SessionTable, StoredSessions
from odar.settings import StoreSettings
from odar.traces.database import Database, sessions
from odar.types import Query, SessionUse, Token, Usage
from support.scripted import ScriptedProvider
from support.traces import make_answer

CHAT = "/v1/chat/completions"
FIRST = Message("user", "Fix the parser.")
TOOL = {"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}


def decided(table: SessionTable, messages: Sequence[Message], **options: Any) -> SessionUse:
    """Answer a request of a conversation with the slow agent."""
    opened = table.find(
        Query.from_messages(tuple(messages), ChatParameters(user=options.pop("user", None))), **options
    )
    trace = make_answer().trace
    use = opened.use("slow", trace.calls)
    table.save(opened, replace(trace, plan=replace(trace.plan, session=use)), options.get("key_id", ""))
    return use


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_conversation_is_recognised_by_its_earlier_turns() -> None:
    table = SessionTable(10, Clock())
    step = [FIRST, Message("assistant", "as the client likes"), Message("tool", "ok", tool_call_id="1")]
    assert decided(table, [FIRST]).requests == 1
    assert decided(table, step).requests == 2
    assert decided(table, [*step, Message("assistant", "x"), Message("user", "Thanks")]).requests == 3
    other = [Message("user", "Something else"), *step[1:]]
    assert decided(table, other).requests == 1


def test_keys_users_and_named_sessions_are_kept_apart() -> None:
    table = SessionTable(10, Clock())
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
    table = SessionTable(4, clock)
    for name in range(5):
        clock.now = name + 1
        decided(table, [FIRST], headers=[(b"x-session-id", str(name).encode())])
    assert decided(table, [FIRST], headers=[(b"x-session-id", b"4")]).requests == 2
    assert decided(table, [FIRST], headers=[(b"x-session-id", b"1")]).requests == 2
    assert decided(table, [FIRST], headers=[(b"x-session-id", b"0")]).requests == 1, "the oldest made room"
    clock.now = SESSION_TTL_S + 6
    assert decided(table, [FIRST], headers=[(b"x-session-id", b"4")]).requests == 1


def test_processes_share_sessions_that_were_made_before_the_fork() -> None:
    table = SessionTable(10)
    if not (child := os.fork()):
        decided(table, [FIRST])
        os._exit(0)
    os.waitpid(child, 0)
    assert decided(table, [FIRST, Message("assistant", "a"), Message("user", "b")]).requests == 2


def test_a_state_that_two_processes_wrote_at_once_counts_as_missing() -> None:
    table = SessionTable(4)
    decided(table, [FIRST])
    table._memory[60] ^= 1
    assert decided(table, [FIRST, Message("assistant", "a"), Message("user", "b")]).requests == 1


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_gateways_on_several_machines_share_sessions(kind, tmp_path, request) -> None:
    url = str(tmp_path / "odar.db") if kind == "sqlite" else request.getfixturevalue("postgres_url")
    with closing(Database(StoreSettings(url=url))) as database:
        tables, clock = [SessionTable(10, Clock()) for _ in range(2)], Clock()
        for table in tables:
            table._clock = clock
            table.stored = StoredSessions(database)
        turns = [FIRST]
        for number in range(4):
            clock.now += 1
            table = tables[number % 2]
            assert decided(table, turns).requests == number + 1
            table.stored.write()
            turns += [Message("assistant", "a"), Message("user", f"go on, {number}")]
        late = StoredSessions(database)
        stored = late.get(key := next(bytes.fromhex(row) for row in ids(database)))
        late.put(key, b"older", 0.0)
        late.write()
        assert late.get(key) == stored, "an older state does not replace a newer one"
        late.delete_old()
        assert ids(database) == [], "1970 is long ago"


def ids(database: Database) -> list[str]:
    with database.read() as connection:
        return list(connection.scalars(select(sessions.c.id)))


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


async def test_the_agent_that_began_a_tool_loop_continues_it(start: Any) -> None:
    models = {
        "quick": {"provider": "f", "logprobs": True, "price": {"input": 1, "output": 2}},
        "deep": {"provider": "s", "logprobs": True, "price": {"input": 20, "output": 40}},
    }
    for dial, agent in (("60", "fast"), ("1", "slow")):
        pair = agents([-0.1])
        told = await loop(start, pair, routing__dial=dial, policy="cascade", models=models)
        assert [each["session"]["event"] for each in told] == ["start", "stay", "stay", "stay"]
        assert [each["calls"] for each in told] == [1, 1, 1, 1]
        assert told[-1]["session"] == {
            "event": "stay", "agent": agent, "requests": 4, "switches": 0, "cached_tokens": 3000,
        }  # fmt: skip
        assert {name: len(each.requests) for name, each in pair.items()} == {"f": 0, "s": 0} | {agent[0]: 4}


async def test_without_sessions_every_request_is_routed_by_itself(start: Any) -> None:
    told = await loop(start, agents([-0.1]), gateway__sessions=0)
    assert [each["calls"] for each in told] == [1, 1, 1, 1]
    assert all("session" not in each for each in told)


def test_a_key_drops_its_own_sessions_first() -> None:
    """At most one of four of another key's: with 40 slots, three quarters of its sessions stay."""
    table = SessionTable(40, Clock())
    starts = [[Message("user", f"Start {number}")] for number in range(10)]
    for start in starts:
        decided(table, start, key_id="modest")
    for number in range(1_000):
        decided(table, [Message("user", f"Question {number}")], key_id="greedy")
    follows = [[*start, Message("assistant", "yes"), Message("user", "Go on.")] for start in starts]
    kept = [decided(table, follow, key_id="modest").requests == 2 for follow in follows]
    assert sum(kept) >= 5
