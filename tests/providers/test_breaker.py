from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from odar.errors import ProviderError, ProviderProtocolError, ProviderTimeout, ProviderUnreachable
from odar.providers.base import Reply
from odar.providers.breaker import Breaker
from support.requests import ask
from support.scripted import ScriptedProvider, completion
from support.waiting import until

DOWN = ProviderError("out of order", provider="p", status=503, retryable=True)
BUSY = ProviderError("slow down", provider="p", status=429, retryable=True)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(failures=3, cooldown_s=10, clock=clock)


def fail(breaker: Breaker, times: int) -> None:
    for _ in range(times):
        breaker.failed()


async def call(breaker: Breaker, provider: ScriptedProvider, **options: bool) -> Reply:
    request = replace(ask(), **options)
    return await breaker.call(request, lambda: provider.complete(request))


def test_only_consecutive_failures_open_the_breaker(breaker: Breaker) -> None:
    fail(breaker, 2)
    breaker.succeeded()
    fail(breaker, 2)
    assert (breaker.state, breaker.admit()) == ("closed", None)
    fail(breaker, 1)
    assert (breaker.state, breaker.admit()) == ("open", 10)


def test_the_failures_of_one_key_do_not_open_it_for_others(breaker: Breaker, clock: Clock) -> None:
    breaker.succeeded("honest")
    for _ in range(20):
        breaker.failed("hostile")
    assert breaker.state == "closed"
    breaker.failed("honest")
    assert breaker.state == "open", "others fail too"


def test_without_answers_to_others_the_failures_of_one_key_open_it(breaker: Breaker, clock: Clock) -> None:
    breaker.succeeded("honest")
    clock.now += 1000
    for _ in range(20):
        breaker.failed("only")
    assert breaker.state == "open"


def test_a_late_failure_does_not_prolong_the_cooldown(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now = 9
    fail(breaker, 1)
    assert breaker.admit() == 1


def test_one_probe_at_a_time(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now = 10
    assert [breaker.admit() is None for _ in range(3)] == [True, False, False]
    breaker.succeeded()
    assert breaker.admit() is None


def test_a_failed_probe_doubles_the_cooldown_up_to_a_limit(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    waits = []
    for _ in range(6):
        clock.now += breaker.admit() or 0
        assert breaker.admit() is None
        breaker.failed()
        waits.append(breaker.admit())
    assert waits == [20, 40, 80, 80, 80, 80]
    breaker.succeeded()
    fail(breaker, 3)
    assert breaker.admit() == 10


def test_an_abandoned_probe_allows_another(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now = 10
    assert breaker.admit() is None
    breaker.abandoned()
    assert breaker.admit() is None


def test_a_probe_without_a_result_expires(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now = 10
    breaker.admit()
    clock.now = 20
    assert breaker.admit() is None


async def test_an_open_breaker_sends_no_request(breaker: Breaker, clock: Clock) -> None:
    answers = [DOWN] * 3
    inner = ScriptedProvider(lambda request, index: answers.pop() if answers else [completion("4")])
    for _ in range(3):
        with pytest.raises(ProviderError, match="out of order"):
            await call(breaker, inner)
    with pytest.raises(ProviderUnreachable, match="retry after 10 s") as caught:
        await call(breaker, inner)
    assert (caught.value.status, caught.value.retry_after, len(inner.requests)) == (503, 10, 3)
    clock.now = 10
    assert (await call(breaker, inner)).completions[0].text == "4"
    assert breaker.state == "closed"


async def test_a_rate_limit_does_not_open_the_breaker(breaker: Breaker) -> None:
    inner = ScriptedProvider(lambda request, index: BUSY)
    for _ in range(5):
        with pytest.raises(ProviderError, match="slow down"):
            await call(breaker, inner)
    assert breaker.state == "closed"


async def test_a_cancelled_probe_allows_another(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now = 10
    inner = ScriptedProvider(lambda request, index: [completion("4")], delay_s=10)
    task = asyncio.create_task(call(breaker, inner))
    await until(lambda: inner.in_flight)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert breaker.admit() is None


def test_inspecting_a_breaker_does_not_change_it(breaker: Breaker, clock: Clock) -> None:
    assert (breaker.failures, breaker.waiting()) == (0, None)
    fail(breaker, 3)
    assert (breaker.failures, breaker.waiting()) == (3, 10.0)
    clock.now = 12.0
    assert breaker.waiting() == 0.0
    assert breaker.state == "open"  # `admit` would have let a probe pass


@pytest.mark.parametrize(
    ("error", "options", "state"),
    [
        (ProviderProtocolError("larger than 64 MB", local=True), {}, "closed"),
        (ProviderTimeout("while it was parsed", local=True), {}, "closed"),
        (ProviderTimeout("no answer"), {"short_timeout": True}, "closed"),
        (ProviderProtocolError("no choices: it only makes embeddings"), {"unlisted_model": True}, "closed"),
        (ProviderTimeout("it is still loading"), {"unlisted_model": True}, "closed"),
        (ProviderUnreachable("nobody listens", reached=False), {"unlisted_model": True}, "open"),
        (ProviderProtocolError("no JSON"), {}, "open"),
        (ProviderTimeout("no answer"), {}, "open"),
    ],
)
async def test_what_a_caller_provokes_does_not_open_the_breaker(breaker, error, options, state):
    inner = ScriptedProvider(lambda *_: error)
    for _ in range(3):
        with pytest.raises(type(error)):
            await call(breaker, inner, **options)
    assert breaker.state is state
