"""Retries, deadlines, connections and keys, tested with the OpenAI provider."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.errors import (
    ProviderError,
    ProviderProtocolError,
    ProviderTimeout,
    ProviderUnreachable,
    SettingsError,
)
from odar.providers import connection, http
from odar.providers.http import backoff_s
from odar.providers.openai import OpenAIProvider, read_reply
from support import fault_server as faults
from support.fault_server import Behaviour, Exchange, FaultServer
from support.requests import KEY, ask
from support.waiting import until

FAULTS: dict[str, tuple[Behaviour, type[ProviderError], bool]] = {
    "hang": (faults.hang(), ProviderTimeout, True),
    "trickle": (faults.trickle(), ProviderTimeout, True),
    "400": (faults.status(400), ProviderError, False),
    "401": (faults.status(401), ProviderError, False),
    "403": (faults.status(403), ProviderError, False),
    "404": (faults.status(404), ProviderError, False),
    "422": (faults.status(422), ProviderError, False),
    "408": (faults.status(408), ProviderError, True),
    "409": (faults.status(409), ProviderError, True),
    "425": (faults.status(425), ProviderError, True),
    "429": (faults.status(429), ProviderError, True),
    "500": (faults.status(500), ProviderError, True),
    "503": (faults.status(503), ProviderError, True),
    "redirect": (faults.status(307, location="http://127.0.0.1:1/"), ProviderError, False),
    "garbage": (faults.garbage(), ProviderProtocolError, True),
    "html": (faults.html(), ProviderProtocolError, False),
    "not http": (faults.not_http(), ProviderProtocolError, True),
    "json, but a list": (faults.answer([]), ProviderProtocolError, True),
    "json, but null": (faults.answer(None), ProviderProtocolError, True),
    "wrong shape": (faults.answer({"choices": [{"text": "4"}]}), ProviderProtocolError, True),
    "choices of a wrong type": (faults.answer({"choices": 7}), ProviderProtocolError, True),
    "empty choices": (faults.empty_choices(), ProviderProtocolError, True),
    "error in a 200": (faults.answer({"error": {"message": "no", "code": 503}}), ProviderError, True),
    "truncated": (faults.truncated(), ProviderUnreachable, True),
    "reset": (faults.reset(), ProviderUnreachable, True),
}


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("name", FAULTS)
async def test_every_fault_raises_the_right_error_without_the_key(
    name: str, streaming: bool, server: FaultServer, openai: OpenAIProvider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    behaviour, kind, retryable = FAULTS[name]
    server.behave(behaviour)
    texts: list[str] = []
    on_delta = (lambda delta: texts.append(delta.text)) if streaming else None
    with pytest.raises(ProviderError) as caught:
        await openai.complete(ask(timeout_s=0.2 if kind is ProviderTimeout else 60.0), on_delta)
    assert (type(caught.value), caught.value.retryable, texts) == (kind, retryable, [])
    assert str(caught.value).startswith("up: ")
    assert len(server.requests) == (1 if kind is ProviderTimeout or not retryable else 3)
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert_no_key(caught.value, caplog.text, repr(openai))
    await server.until_idle()


def assert_no_key(error: ProviderError, *more: str) -> None:
    shown = [str(error), repr(error), error.body or "", error.code or "", *more]
    cause: BaseException | None = error
    while cause is not None:
        shown += [repr(cause), *map(repr, cause.args), "".join(traceback.format_exception(cause))]
        cause = cause.__cause__ or cause.__context__
    assert not any(KEY in text for text in shown)


@pytest.mark.parametrize(
    "fault", ["408", "409", "425", "429", "500", "503", "garbage", "truncated", "reset", "empty choices"]
)
async def test_a_temporary_fault_is_retried(fault: str, server: FaultServer, openai: OpenAIProvider) -> None:
    server.enqueue(FAULTS[fault][0], FAULTS[fault][0])
    reply = await openai.complete(ask())
    assert (reply.completions[0].text, reply.retries, len(server.requests)) == ("Answer: 4", 2, 3)


async def test_retry_after_is_honoured(
    server: FaultServer, openai: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float | None] = []

    def noting(number: int, retry_after: float | None) -> float:
        waits.append(retry_after)
        return backoff_s(number, retry_after)

    monkeypatch.setattr(http, "backoff_s", noting)
    server.enqueue(faults.status(429, retry_after=0.2))
    assert (await openai.complete(ask())).retries == 1
    assert waits == [0.2]


@pytest.mark.parametrize("headers", [{"retry_after": "30"}, {"retry_after_ms": "30000"}])
async def test_a_retry_after_beyond_the_deadline_fails_at_once(
    headers: dict[str, str], server: FaultServer, openai: OpenAIProvider
) -> None:
    server.behave(faults.status(429, **headers))
    with pytest.raises(ProviderError) as caught:
        await openai.complete(ask(timeout_s=1.0))
    assert (caught.value.status, caught.value.retry_after) == (429, 30.0)
    assert str(caught.value) == "up: HTTP 429: upstream says 429; retry after 30 s"
    assert len(server.requests) == 1


async def test_the_timeout_covers_all_attempts(server: FaultServer, openai: OpenAIProvider) -> None:
    server.enqueue(faults.status(503))
    server.behave(faults.hang())
    with pytest.raises(ProviderTimeout, match=r"within 0.3 s \(the attempt before: up: HTTP 503"):
        await openai.complete(ask(timeout_s=0.3))


@given(st.integers(0, 1000), st.floats(0, 60) | st.none())
def test_waits_are_bounded(number: int, retry_after: float | None) -> None:
    wait = backoff_s(number, retry_after)
    assert (retry_after or 0.0) <= wait <= (retry_after or 0.0) + 8.0


async def test_cancelling_closes_the_connection(server: FaultServer, openai: OpenAIProvider) -> None:
    server.behave(faults.hang())
    call = asyncio.create_task(openai.complete(ask()))
    await until(lambda: server.busy)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await server.until_idle(connections=0)


async def test_cancelling_a_stream_closes_the_connection(server: FaultServer, openai: OpenAIProvider) -> None:
    server.behave(faults.trickle("one two three four", stream=True))
    first = asyncio.Event()
    call = asyncio.create_task(openai.complete(ask(), lambda _: first.set()))
    await asyncio.wait_for(first.wait(), 60)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await server.until_idle(connections=0)


async def test_cancelling_between_attempts_stops_retrying(
    server: FaultServer, openai: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "backoff_s", lambda *_: 100.0)
    server.behave(faults.status(500))
    call = asyncio.create_task(openai.complete(ask(timeout_s=1000)))
    await until(lambda: server.requests and not server.busy)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_connections_are_reused(server: FaultServer, openai: OpenAIProvider) -> None:
    for on_delta in (None, lambda _: None, None):
        await openai.complete(ask(), on_delta)
    assert (len(server.requests), server.connections) == (3, 1)


async def test_concurrent_calls_do_not_queue_in_the_client(server: FaultServer, openai: OpenAIProvider) -> None:
    all_here = asyncio.Barrier(120)

    async def behave(exchange: Exchange) -> None:
        await all_here.wait()
        await faults.ok()(exchange)

    server.behave(behave)
    await asyncio.gather(*(openai.complete(ask()) for _ in range(120)))
    assert server.most_busy == 120


async def test_a_closed_provider_can_be_used_again(server: FaultServer, openai: OpenAIProvider) -> None:
    await openai.close()
    await openai.complete(ask())
    await openai.close()
    await openai.close()
    await server.until_idle(connections=0)
    await openai.complete(ask())


@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")  # asyncio's own, of the loop that is gone
def test_a_provider_can_be_used_in_several_event_loops() -> None:
    provider = OpenAIProvider("up", "http://127.0.0.1:1/v1")

    async def once() -> str:
        async with FaultServer() as server:
            provider._base_url = server.url
            text = (await provider.complete(ask())).completions[0].text
            await server.until_idle()
            return text

    assert [asyncio.run(once()), asyncio.run(once())] == ["Answer: 4"] * 2
    asyncio.run(provider.close())
    gc.collect()


async def test_a_refused_connection_is_provider_unreachable() -> None:
    provider = OpenAIProvider("up", "http://127.0.0.1:1/v1")
    with pytest.raises(ProviderUnreachable, match=r"^up: cannot connect to 127.0.0.1:1 \(.*\); check base_url$"):
        await provider.complete(ask())
    await provider.close()


@pytest.mark.parametrize("base_url", ["localhost:8080", "", "ftp://x/v1", "http://", "http://[::1"])
async def test_an_invalid_base_url_is_rejected(base_url: str) -> None:
    provider = OpenAIProvider("up", base_url)
    with pytest.raises(ProviderUnreachable, match="base_url") as caught:
        await provider.complete(ask())
    await provider.close()
    assert not caught.value.retryable


async def test_an_endless_answer_is_cut_off(
    server: FaultServer, openai: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_BODY_BYTES", 100_000)

    async def flood(exchange: Exchange) -> None:
        await exchange.head(200, "application/json", None)
        while True:
            await exchange.write(b" " * 10_000)

    server.behave(flood)
    with pytest.raises(ProviderProtocolError, match="larger than 100000 bytes") as caught:
        await openai.complete(ask())
    assert caught.value.local
    await server.until_idle(connections=0)


@pytest.mark.parametrize(
    ("written", "read"), [(r"\ud83d\ude00", "😀"), (r"a\ud83d", "a?"), (r"\\ud83d", r"\ud83d")]
)
async def test_half_of_a_surrogate_pair_is_replaced(
    written: str, read: str, server: FaultServer, openai: OpenAIProvider
) -> None:
    server.behave(lambda exchange: exchange.send(f'{{"data": [], "model": "{written}"}}'.encode()))
    assert (await openai.forward("/embeddings", {}, ask())).model == read


async def test_a_long_error_body_is_truncated(server: FaultServer, openai: OpenAIProvider) -> None:
    server.behave(faults.status(400, body={"error": "x" * 200_000}))
    with pytest.raises(ProviderError) as caught:
        await openai.complete(ask())
    assert len(caught.value.body or "") == 8_000
    assert len(str(caught.value)) < 300


async def test_a_rejected_key_names_the_variable(server: FaultServer, openai: OpenAIProvider) -> None:
    server.behave(faults.status(401))
    with pytest.raises(ProviderError, match=r"^up: HTTP 401: upstream says 401; set UP_API_KEY$"):
        await openai.complete(ask())


async def test_a_key_may_end_in_a_line_break(server: FaultServer) -> None:
    provider = OpenAIProvider("up", server.url, KEY + "\n")
    await provider.complete(ask())
    await provider.close()
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_an_invalid_key_is_a_settings_error() -> None:
    with pytest.raises(SettingsError, match="API key contains a line break") as caught:
        OpenAIProvider("up", "http://127.0.0.1:1", "sk-one\r\nsk-two")
    assert "sk-" not in str(caught.value)


class CallersError(Exception):
    pass


@pytest.mark.parametrize("error", [CallersError(), TimeoutError(), BrokenPipeError(), ValueError()])
async def test_exceptions_of_on_text_reach_the_caller(
    error: Exception, server: FaultServer, openai: OpenAIProvider
) -> None:
    def on_delta(_: str) -> None:
        raise error

    with pytest.raises(type(error)):
        await openai.complete(ask(), on_delta)
    assert len(server.requests) == 1
    await server.until_idle()


async def test_an_unrequested_content_encoding_is_an_error(server: FaultServer, openai: OpenAIProvider) -> None:
    async def packed(exchange: Exchange) -> None:
        assert exchange.headers["accept-encoding"] == "identity"
        await exchange.send(b"\x1f\x8b...", content_encoding="gzip")

    server.behave(packed)
    with pytest.raises(ProviderProtocolError, match=r"compressed \(gzip\)") as caught:
        await openai.complete(ask())
    assert not caught.value.retryable


@pytest.mark.parametrize(("words", "inline"), [(1, True), (20_000, False)])
async def test_a_large_reply_is_read_outside_of_the_event_loop(openai, server, monkeypatch, words, inline):
    threads = []

    def read(payload, **options):
        threads.append(threading.current_thread())
        return read_reply(payload, **options)

    monkeypatch.setattr("odar.providers.openai.read_reply", read)
    server.behave(faults.ok(" word" * words))
    await openai.complete(ask())
    assert [thread is threading.main_thread() for thread in threads] == [inline]
