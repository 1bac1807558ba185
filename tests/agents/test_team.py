"""How failed calls are counted and priced."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from odar.agents.ledger import Ledger
from odar.catalogue import ModelCard, Price
from odar.errors import ProviderError, ProviderTimeout, ProviderUnreachable
from odar.providers.base import Completion, Message, Reply, Request
from odar.providers.breaker import Breaker
from odar.providers.connection import Connections
from odar.providers.openai import OpenAIProvider
from odar.types import Ask, Call, Usage
from support.fault_server import FaultServer, hang, ok, reset, status
from support.waiting import until

CARD = ModelCard("m", "p", "m", price=Price(1.0, 0.1, 10.0))
MESSAGES = (Message("user", "hello"),)


async def bill(ask, *, n: int = 1, timeout_s: float = 5.0) -> Call:
    """Return the recorded call, whether it succeeded or failed."""
    ledger = Ledger(60.0)
    request = Request("m", MESSAGES, n=n, timeout_s=timeout_s)
    with contextlib.suppress(ProviderError, asyncio.CancelledError):
        await ledger.bill(Ask("slow"), CARD, request, MESSAGES, ask)
    (call,) = ledger.calls
    return call


@pytest.fixture
async def server():
    async with FaultServer() as server:
        yield server


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr("odar.providers.http.FIRST_PAUSE_S", 0.001)


@pytest.fixture
async def provider(server):
    provider = OpenAIProvider("p", server.url)
    yield provider
    await provider.close()


@pytest.mark.parametrize(
    ("behaviours", "sent", "known"),
    [
        ([ok()], 1, True),
        ([status(503), ok()], 2, True),
        ([status(503)] * 3, 3, True),
        ([status(400)], 1, True),
        ([reset()] * 3, 3, False),
        ([status(503), reset(), status(400)], 3, False),
    ],
)
async def test_every_request_sent_is_counted(server, provider, behaviours, sent, known):
    server.enqueue(*behaviours)
    call = await bill(provider.complete)
    assert (1 + call.retries, len(server.requests)) == (sent, sent)
    assert (call.cost_usd is not None) is known


async def test_attempts_before_a_timeout_are_counted(server, provider):
    server.enqueue(status(503), hang())
    call = await bill(provider.complete, timeout_s=0.3)
    assert (1 + call.retries, len(server.requests), call.cost_usd) == (2, 2, None)


async def test_a_call_without_a_connection_is_not_counted():
    async with FaultServer() as closed:
        url = closed.url
    provider = OpenAIProvider("p", url)
    call = await bill(provider.complete, n=5)
    await provider.close()
    assert (call.samples, call.retries, call.usage, call.cost_usd) == (0, 2, Usage(0, 0, 0, 0, 0, 0), 0.0)
    assert "cannot connect" in call.error


async def test_a_call_that_connects_on_a_retry_is_counted(server, provider, monkeypatch):
    """The first attempt does not connect, the second gets a server error: the call was sent."""
    tries = iter([ProviderUnreachable("closed", retryable=True, may_be_billed=False, reached=False)])
    real = Connections.request

    def request(*arguments):
        for error in tries:
            raise error
        return real(*arguments)

    monkeypatch.setattr(Connections, "request", request)
    server.behave(status(400))
    call = await bill(provider.complete)
    assert (call.samples, call.retries, len(server.requests)) == (1, 1, 1)


async def test_a_call_rejected_by_the_breaker_is_not_counted(server, provider):
    breaker = Breaker(failures=1, cooldown_s=60)
    breaker.failed()
    call = await bill(lambda request: breaker.call(request, lambda: provider.complete(request)), n=5)
    assert (call.samples, call.cost_usd, len(server.requests)) == (0, 0.0, 0)


async def test_calls_without_a_connection_do_not_count_against_limits():
    ledger = Ledger(60.0, max_calls=1)

    async def refused(_: Request) -> Reply:
        raise ProviderUnreachable("closed", reached=False, may_be_billed=False)

    request = Request("m", MESSAGES)
    with pytest.raises(ProviderUnreachable):
        await ledger.bill(Ask("fast"), CARD, request, MESSAGES, refused)
    assert ledger.affordable(CARD, MESSAGES, 10, 1) == 1
    assert ledger.spend().calls == 0

    async def answered(_: Request) -> Reply:
        return Reply((Completion("4"),), Usage(5, 0, 1, 0))

    await ledger.bill(Ask("fast"), CARD, request, MESSAGES, answered)
    assert ledger.spend().calls == 1


async def test_a_provider_that_ignores_its_timeout_is_cancelled(monkeypatch):
    monkeypatch.setattr("odar.agents.ledger.GRACE_S", 0.05)
    ledger = Ledger(60.0)

    async def never(_: Request) -> Reply:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(ProviderTimeout, match=r"p gave no answer within 0\.05 s"):
        await ledger.bill(Ask("slow"), CARD, Request("m", MESSAGES, timeout_s=0.05), MESSAGES, never)
    assert ledger.calls[0].cost_usd is None


async def test_a_cancelled_call_has_an_unknown_cost(server, provider):
    server.behave(hang())
    ledger = Ledger(60.0)
    request = Request("m", MESSAGES)
    task = asyncio.create_task(ledger.bill(Ask("slow"), CARD, request, MESSAGES, provider.complete))
    await until(lambda: server.busy)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (ledger.calls[0].error, ledger.calls[0].cost_usd) == ("cancelled", None)
