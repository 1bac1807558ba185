"""The whole engine against a real server that fails in every way: an answer marked degraded or a clear error,
within the deadline, and nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from odar.config import load_settings
from odar.engine import Odar
from odar.errors import AllAgentsFailed, ProviderTimeout
from support.fault_server import (
    Behaviour,
    FaultServer,
    dies_mid_stream,
    echo_n,
    empty_choices,
    garbage,
    hang,
    html,
    ignores_n,
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
async def servers() -> AsyncIterator[tuple[FaultServer, FaultServer]]:
    """A fast and a slow server; fails the test if a task or connection outlives the engine."""
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
        prompts="default",
        routing__estimator="length",  # the learned one takes seconds to load, the first time
        providers={
            "f": {"kind": "openai", "base_url": fast.url},
            "s": {"kind": "openai", "base_url": slow.url},
        },
        models={
            "quick": {"provider": "f", "logprobs": True, "n": True},
            "deep": {"provider": "s", "logprobs": True, "n": True},
        },
        fast__model="quick",
        slow__model="deep",
        retry={"attempts": 2, "base_s": 0.01, "max_s": 0.02},
        **overrides,
    )
    return Odar(settings)


async def ask(odar: Odar, **options):
    return await odar.aask("What is 2 + 2?", deadline_s=DEADLINE_S, **options)


@pytest.mark.parametrize("path", ["medium", "hard"])
@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_slow_agent_faulty_gives_the_fast_answer_degraded(servers, fault, path):
    fast, slow = servers
    slow.behave(FAULTS[fault])
    async with engine(fast, slow) as odar:
        answer = await ask(odar, path=path)
    assert (answer.answer, answer.degraded) == ("4", True)
    assert any(reason.startswith("slow agent: s") for reason in answer.trace.degradations)


@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_fast_agent_faulty_gives_the_slow_answer_degraded(servers, fault):
    fast, slow = servers
    fast.behave(FAULTS[fault])
    async with engine(fast, slow, fast__timeout_s=0.4) as odar:
        answer = await ask(odar, path="medium")
    assert (answer.answer, answer.degraded) == ("4", True)
    assert any(reason.startswith("fast agent: f") for reason in answer.trace.degradations)


@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_both_faulty_is_a_clear_error(servers, fault):
    fast, slow = servers
    fast.behave(FAULTS[fault])
    slow.behave(FAULTS[fault])
    async with engine(fast, slow) as odar:
        with pytest.raises(AllAgentsFailed) as caught:
            await ask(odar, path="hard")
    assert "\n" not in str(caught.value)


async def test_a_retry_after_that_fits_is_honoured(servers):
    fast, slow = servers
    fast.enqueue(status(429, retry_after=0.2))
    async with engine(fast, slow) as odar:
        answer = await ask(odar, path="simple")
    assert (answer.degraded, answer.trace.calls[0].retries) == (False, 1)
    assert answer.trace.spend.seconds >= 0.2
    assert len(fast.requests) == 2


async def test_a_client_error_is_not_retried(servers):
    fast, slow = servers
    fast.behave(status(400))
    async with engine(fast, slow) as odar:
        assert (await ask(odar, path="simple")).degraded
    assert len(fast.requests) == 1


@pytest.mark.parametrize(("share", "scorer"), [(0.1, "fep (uncalibrated)"), (0.3, "agreement")])
async def test_missing_logprobs_decide_the_scorer(servers, share, scorer):
    fast, slow = servers
    fast.behave(ok(WORDS))
    slow.behave(missing_logprobs(share, " ".join([WORDS] * 4)))
    async with engine(fast, slow) as odar:
        answer = await ask(odar, path="hard")
    assert answer.trace.verdict.scorer == scorer


async def test_a_server_without_logprobs_is_known_by_its_answers(servers):
    fast, slow = servers
    slow.behave(no_logprobs("It is.\nAnswer: 4"))
    async with engine(fast, slow) as odar:
        assert (await ask(odar, path="medium")).trace.verdict.scorer == "slow"


async def test_a_server_that_ignores_n_still_gives_five_samples(servers):
    fast, slow = servers
    slow.behave(ignores_n())
    async with engine(fast, slow) as odar:
        answer = await ask(odar, path="hard")
    assert (len(answer.trace.candidates), answer.trace.spend.calls, answer.degraded) == (6, 6, False)
    assert len(slow.requests) == 5


async def test_the_slow_answers_that_are_there_at_the_deadline_are_used(servers):
    fast, slow = servers
    slow.enqueue(ok(), hang(), ok(), hang(), ok())
    async with engine(fast, slow, models__deep={"provider": "s", "logprobs": True, "n": False}) as odar:
        answer = await ask(odar, path="hard")
    assert len(answer.trace.candidates) == 4
    assert answer.degraded
    timeouts = [call for call in answer.trace.calls if call.error]
    assert len(timeouts) == 2
    assert all(call.cost_usd is None for call in timeouts)


async def test_nothing_at_the_deadline_is_a_timeout(servers):
    fast, slow = servers
    fast.behave(hang())
    slow.behave(hang())
    async with engine(fast, slow) as odar:
        with pytest.raises(AllAgentsFailed) as caught:
            await ask(odar, path="hard")
    assert all(isinstance(cause, ProviderTimeout) for cause in caught.value.causes)


async def test_leaving_cancels_what_is_in_flight(servers):
    fast, slow = servers
    fast.behave(hang())
    slow.behave(hang())
    async with engine(fast, slow) as odar:
        task = asyncio.create_task(odar.aask("What is 2 + 2?", path="hard"))
        while not (fast.busy and slow.busy):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await fast.until_idle()
        await slow.until_idle()


async def test_streaming_reaches_the_caller_before_the_answer_is_whole(servers):
    fast, slow = servers
    fast.behave(trickle(WORDS, every_s=0.001, stream=True))
    pieces: list[str] = []
    async with engine(fast, slow) as odar:
        answer = await ask(odar, path="simple", on_text=pieces.append)
    assert "".join(pieces) == answer.text == WORDS
    assert len(pieces) > 3


async def test_the_hard_path_takes_about_as_long_as_one_slow_call(servers):
    """All six calls are in flight at once; how fast that is, `make bench` measures."""
    fast, slow = servers
    fast.behave(ok(delay_s=0.1))
    slow.behave(ok(delay_s=0.1))
    async with engine(fast, slow, models__deep={"provider": "s", "logprobs": True, "n": False}) as odar:
        await ask(odar, path="hard")
    assert (fast.most_busy, slow.most_busy) == (1, 5)


async def test_a_planted_key_never_shows(servers, monkeypatch):
    fast, slow = servers
    monkeypatch.setenv("PLANTED_KEY", "sk-planted-0123456789")
    fast.behave(status(401, body='{"error": {"message": "bad key sk-planted-0123456789"}}'))
    slow.behave(status(401, body="sk-planted-0123456789"))
    providers = {
        "f": {"kind": "openai", "base_url": fast.url, "api_key_env": "PLANTED_KEY"},
        "s": {"kind": "openai", "base_url": slow.url, "api_key_env": "PLANTED_KEY"},
    }
    settings = load_settings(
        "tiny",
        prompts="default",
        routing__estimator="length",
        providers=providers,
        models={"m": {"provider": "f", "logprobs": True}, "d": {"provider": "s", "logprobs": True}},
        fast__model="m",
        slow__model="d",
    )
    async with Odar(settings) as odar:
        with pytest.raises(AllAgentsFailed) as caught:
            await ask(odar, path="medium")
    assert fast.requests[0].headers["authorization"] == "Bearer sk-planted-0123456789"
    shown = [str(caught.value), repr(caught.value), caught.value.body or "", repr(settings), repr(odar.settings)]
    shown += [str(cause) + (getattr(cause, "body", "") or "") for cause in caught.value.causes]
    assert not any("sk-planted" in text for text in shown)
    assert "check PLANTED_KEY" in str(caught.value)
