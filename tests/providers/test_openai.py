from __future__ import annotations

import asyncio
import json

import pytest

from odar.conversation import ChatParameters
from odar.errors import ProviderError, ProviderProtocolError, ProviderTimeout, ProviderUnreachable
from odar.providers.openai import OpenAIProvider
from odar.types import Token, Usage
from support import fault_server as faults
from support.fault_server import Behaviour, Exchange, FaultServer
from support.payloads import chat_events, chat_payload
from support.requests import KEY, ask


async def test_a_whole_answer(server: FaultServer, openai: OpenAIProvider) -> None:
    reply = await openai.complete(ask())
    (completion,) = reply.completions
    assert completion.text == "Answer: 4"
    assert completion.tokens == (Token("Answer: ", -0.1), Token("4", -0.1))
    assert (reply.usage, reply.model, reply.retries) == (Usage(10, 0, 5, 0, 0, 0), "served", 0)
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["content-type"] == "application/json"
    assert request.json["messages"] == [{"role": "user", "content": "2 + 2?"}]


async def test_a_key_is_optional_and_a_trailing_slash_is_ignored(server: FaultServer) -> None:
    provider = OpenAIProvider("local", server.url + "/")
    await provider.complete(ask())
    await provider.close()
    (request,) = server.requests
    assert "authorization" not in request.headers
    assert request.path == "/v1/chat/completions"


@pytest.mark.parametrize(("behaviour", "got"), [(faults.echo_n(), 5), (faults.ignores_n(), 1)])
async def test_n_samples(behaviour: Behaviour, got: int, server: FaultServer, openai: OpenAIProvider) -> None:
    server.behave(behaviour)
    texts: list[str] = []
    reply = await openai.complete(ask(n=5), lambda delta: texts.append(delta.text))
    assert (len(reply.completions), texts) == (got, [])
    assert server.requests[0].json["n"] == 5
    assert "stream" not in server.requests[0].json


async def test_an_answer_without_log_probabilities_has_no_tokens(
    server: FaultServer, openai: OpenAIProvider
) -> None:
    server.behave(faults.no_logprobs())
    assert (await openai.complete(ask())).completions[0].tokens == ()


async def test_json_under_another_content_type_is_still_an_answer(
    server: FaultServer, openai: OpenAIProvider
) -> None:
    payload = json.dumps(chat_payload("4")).encode()
    server.behave(lambda exchange: exchange.send(payload, content_type="text/plain"))
    assert (await openai.complete(ask())).completions[0].text == "4"


class TestStreaming:
    async def test_text_is_streamed(self, server: FaultServer, openai: OpenAIProvider) -> None:
        server.behave(faults.ok("one two 😀"))
        texts: list[str] = []
        reply = await openai.complete(ask(), lambda delta: texts.append(delta.text))
        assert texts == ["one ", "two ", "😀"]
        assert reply.completions[0].text == "one two 😀"
        assert [token.text for token in reply.completions[0].tokens] == texts
        assert (reply.usage, reply.model) == (Usage(10, 0, 3, 0, 0, 0), "served")
        assert server.requests[0].json["stream_options"] == {"include_usage": True}

    async def test_a_stream_gives_the_same_reply(self, server: FaultServer, openai: OpenAIProvider) -> None:
        server.behave(faults.ok("one two", usage={"prompt_tokens": 10, "completion_tokens": 2}))
        assert await openai.complete(ask(), lambda _: None) == await openai.complete(ask())

    async def test_a_non_streamed_answer_is_accepted(self, server: FaultServer, openai: OpenAIProvider) -> None:
        server.behave(faults.answer(chat_payload("Answer: 4")))
        texts: list[str] = []
        assert (await openai.complete(ask(), lambda delta: texts.append(delta.text))).completions[
            0
        ].text == "Answer: 4"
        assert texts == ["Answer: 4"]

    async def test_a_broken_stream_after_text_is_not_retried(
        self, server: FaultServer, openai: OpenAIProvider
    ) -> None:
        server.behave(faults.dies_mid_stream("one two three", after=3))
        texts: list[str] = []
        with pytest.raises(ProviderUnreachable) as caught:
            await openai.complete(ask(), lambda delta: texts.append(delta.text))
        assert (texts, caught.value.retryable, len(server.requests)) == (["one ", "two "], True, 1)

    async def test_a_broken_stream_before_text_is_retried(
        self, server: FaultServer, openai: OpenAIProvider
    ) -> None:
        server.enqueue(faults.dies_mid_stream(after=1))
        texts: list[str] = []
        reply = await openai.complete(ask(), lambda delta: texts.append(delta.text))
        assert (reply.retries, "".join(texts)) == (1, "Answer: 4")

    async def test_an_incomplete_stream_is_an_error(self, server: FaultServer, openai: OpenAIProvider) -> None:
        server.behave(faults.events(chat_events("one two")[:2], done=False))
        with pytest.raises(ProviderUnreachable, match="broke off"):
            await openai.complete(ask(), lambda _: None)

    async def test_a_stream_with_a_finish_reason_needs_no_done(
        self, server: FaultServer, openai: OpenAIProvider
    ) -> None:
        server.behave(faults.events(chat_events("one two"), done=False))
        assert (await openai.complete(ask(), lambda _: None)).completions[0].text == "one two"

    async def test_done_ends_the_stream_even_if_the_connection_stays(
        self, server: FaultServer, openai: OpenAIProvider
    ) -> None:
        async def stays(exchange: Exchange) -> None:
            await exchange.head(200, "text/event-stream", None)
            for payload in chat_events("4"):
                await exchange.write(f"data: {json.dumps(payload)}\n\n".encode())
            await exchange.write(b"data: [DONE]\n\n")
            await faults.hang()(exchange)

        server.behave(stays)
        assert (await openai.complete(ask(timeout_s=60.0), lambda _: None)).completions[0].text == "4"
        await server.until_idle(connections=0)

    async def test_an_error_in_the_stream_is_raised(self, server: FaultServer, openai: OpenAIProvider) -> None:
        error = {"error": {"message": f"out of memory, {KEY}", "type": "server_error"}}
        server.behave(faults.events([*chat_events("one two")[:2], error]))
        with pytest.raises(ProviderError) as caught:
            await openai.complete(ask(), lambda _: None)
        assert str(caught.value) == "up: error in the answer (server_error): out of memory, [redacted]"
        assert (caught.value.status, caught.value.retryable, len(server.requests)) == (500, True, 1)

    @pytest.mark.parametrize("payloads", [["not json"], ["[]"], [{"choices": 7}], []])
    async def test_invalid_streams_are_rejected(
        self, payloads: list[object], server: FaultServer, openai: OpenAIProvider
    ) -> None:
        server.behave(faults.events(payloads))
        with pytest.raises(ProviderProtocolError):
            await openai.complete(ask(), lambda _: None)
        await server.until_idle()

    async def test_a_slow_stream_is_cut_off(self, server: FaultServer, openai: OpenAIProvider) -> None:
        server.behave(faults.trickle("one two three four five six", every_s=0.1, stream=True))
        texts: list[str] = []
        with pytest.raises(ProviderTimeout):
            await openai.complete(ask(timeout_s=0.35), lambda delta: texts.append(delta.text))
        assert texts
        await server.until_idle(connections=0)


class TestCheck:
    @pytest.mark.parametrize(("count", "line"), [(12, "12 models"), (1, "1 model"), (0, "0 models")])
    async def test_check_describes_the_models_in_one_line(
        self, count: int, line: str, server: FaultServer, openai: OpenAIProvider
    ) -> None:
        server.behave(faults.models(count))
        assert await openai.check() == line
        assert (server.requests[0].method, server.requests[0].path) == ("GET", "/v1/models")

    async def test_a_rejected_key_names_the_variable(self, server: FaultServer, openai: OpenAIProvider) -> None:
        server.behave(faults.status(401))
        with pytest.raises(ProviderError, match="set UP_API_KEY"):
            await openai.check()

    async def test_an_invalid_model_list_is_an_error(self, server: FaultServer, openai: OpenAIProvider) -> None:
        server.behave(faults.answer({"models": None}))
        with pytest.raises(ProviderProtocolError):
            await openai.check()


async def test_what_a_clients_options_provoke_is_not_remembered_for_others(
    server: FaultServer, openai: OpenAIProvider
) -> None:
    """A model that gives log-probabilities, but not together with reasoning."""

    async def behave(exchange: Exchange) -> None:
        asked = exchange.json
        if asked.get("logprobs") and asked.get("reasoning_effort"):
            await exchange.send_json({"error": {"message": "logprobs is not supported with reasoning_effort"}}, 400)
        else:
            await faults.ok("Answer: 4")(exchange)

    server.behave(behave)
    await openai.complete(ask(parameters=ChatParameters(effort="high")))
    assert [each.json.get("logprobs") for each in server.requests] == [True, None]
    await openai.complete(ask())
    assert server.requests[-1].json["logprobs"] is True


async def test_other_tasks_go_on_while_tiny_events_are_read(server: FaultServer, openai: OpenAIProvider) -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def behave(exchange: Exchange) -> None:
        events = b"data: {}\n\n" * 20_000 + b"".join(
            b"data: %b\n\n" % json.dumps(event).encode() for event in chat_events("Answer: 4")
        )
        await exchange.send(events + b"data: [DONE]\n\n", content_type="text/event-stream")

    server.behave(behave)
    counting = asyncio.create_task(count_turns())
    pieces: list[int] = []
    await openai.complete(ask(), lambda delta: pieces.append(turns))
    counting.cancel()
    assert turns > 20_000 / 100


async def test_a_large_error_is_not_copied(server: FaultServer, openai: OpenAIProvider) -> None:
    payload = {"error": {"message": "m" * 100_000, "type": "invalid_request_error", "more": list(range(50_000))}}
    server.behave(faults.answer(payload))
    with pytest.raises(ProviderError, match="error in the answer") as raised:
        await openai.complete(ask())
    assert (raised.value.status, raised.value.body) == (400, "")
