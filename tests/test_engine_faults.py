"""The engine against HTTP servers that fail in every way: an answer marked degraded or a one-line error within the
deadline, without open tasks or connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from odar.config import load_settings
from odar.engine import Odar
from support.fault_server import (
    Behaviour,
    FaultServer,
    dies_mid_stream,
    echo_n,
    empty_choices,
    garbage,
    hang,
    html,
    missing_logprobs,
    no_logprobs,
    not_http,
    ok,
    reset,
    status,
    trickle,
    truncated,
)

DEADLINE_S = 1.0
WORDS = "one two three four five six seven eight nine Answer: 4"
FAULTS: dict[str, Behaviour] = {
    "hang": hang(),
    "slow trickle": trickle(every_s=0.2),
    "429 with retry-after": status(429, retry_after=30),
    "500": status(500),
    "401": status(401),
    "200 with garbage": garbage(),
    "wrong content type": html(),
    "not HTTP": not_http(),
    "truncated body": truncated(),
    "connection reset": reset(),
    "empty choice list": empty_choices(),
    "dies mid-stream": dies_mid_stream(),
}


@pytest.fixture
async def servers(monkeypatch) -> AsyncIterator[tuple[FaultServer, FaultServer]]:
    """A fast and a slow server; fails the test if a task or connection outlives the engine."""
    monkeypatch.setattr("odar.providers.http.ATTEMPTS", 2)
    monkeypatch.setattr("odar.providers.http.FIRST_PAUSE_S", 0.01)
    async with FaultServer() as fast, FaultServer() as slow:
        before = asyncio.all_tasks()
        fast.behave(ok())
        slow.behave(echo_n())
        yield fast, slow
        await fast.until_idle(connections=0)
        await slow.until_idle(connections=0)
        left = asyncio.all_tasks() - before - fast.tasks - slow.tasks - {asyncio.current_task()}
        assert not left, f"left behind: {left}"


def engine(fast: FaultServer, slow: FaultServer, **overrides) -> Odar:
    settings = load_settings(
        "tiny",
        environ={},
        prompts="paper",
        routing__estimator="length",  # the learned estimator takes seconds to load
        providers={
            "f": {"kind": "openai", "base_url": fast.url},
            "s": {"kind": "openai", "base_url": slow.url},
        },
        models={
            "quick": {"provider": "f", "logprobs": True, "n": True},
            "deep": {"provider": "s", "logprobs": True, "n": True},
        },
        policy="paper",
        fast__model="quick",
        slow__model="deep",
        **overrides,
    )
    return Odar(settings)


async def ask(odar: Odar, deadline_s: float = DEADLINE_S, **options):
    return await odar.aask("What is 2 + 2?", deadline_s=deadline_s, **options)


@pytest.mark.parametrize("path", ["medium", "hard"])
@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_a_faulty_slow_agent_gives_the_fast_answer_marked_degraded(servers, fault, path):
    fast, slow = servers
    slow.behave(FAULTS[fault])
    async with engine(fast, slow) as odar:
        answer = await ask(odar, path=path)
    assert (answer.final, answer.degraded) == ("4", True)
    assert any(reason.startswith("slow agent: s") for reason in answer.trace.degradations)


@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_a_faulty_fast_agent_gives_the_slow_answer_marked_degraded(servers, fault):
    fast, slow = servers
    fast.behave(FAULTS[fault])
    async with engine(fast, slow, fast__timeout_s=0.4) as odar:  # the timeout, not the deadline, ends the fast call
        answer = await ask(odar, deadline_s=30, path="medium")
    assert (answer.final, answer.degraded) == ("4", True)
    assert any(reason.startswith("fast agent: f") for reason in answer.trace.degradations)


@pytest.mark.parametrize(("share", "rule"), [(0.1, "fep (uncalibrated)"), (0.3, "agreement")])
async def test_the_share_of_missing_logprobs_decides_the_rule(servers, share, rule):
    fast, slow = servers
    fast.behave(ok(WORDS))
    slow.behave(missing_logprobs(share, " ".join([WORDS] * 4)))
    async with engine(fast, slow) as odar:
        answer = await ask(odar, path="hard")
    assert answer.trace.verdict.rule == rule


async def test_a_server_without_logprobs_is_recognised_by_its_answers(servers):
    fast, slow = servers
    slow.behave(no_logprobs("It is.\nAnswer: 4"))
    async with engine(fast, slow) as odar:
        assert (await ask(odar, path="medium")).trace.verdict.rule == "slow"
