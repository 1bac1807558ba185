from __future__ import annotations

from typing import Any

import pytest

from odar.errors import ProviderError, ProviderProtocolError, ProviderUnreachable
from odar.providers.anthropic import AnthropicProvider, messages_body, read_message
from odar.providers.base import Message, Sampling
from odar.types import Image, Usage
from support import fault_server as faults
from support.fault_server import Behaviour, FaultServer
from support.payloads import chat_payload, message_events, message_payload
from support.requests import KEY, ask

FAULTS: dict[str, tuple[Behaviour, type[ProviderError], bool]] = {
    "400": (faults.anthropic_error(400, "invalid_request_error"), ProviderError, False),
    "401": (faults.anthropic_error(401, "authentication_error"), ProviderError, False),
    "429": (faults.anthropic_error(429, "rate_limit_error"), ProviderError, True),
    "500": (faults.anthropic_error(500, "api_error"), ProviderError, True),
    "529": (faults.anthropic_error(529, "overloaded_error"), ProviderError, True),
    "error in a 200": (faults.anthropic_error(200, "overloaded_error"), ProviderError, True),
    "another protocol": (faults.answer(chat_payload("4")), ProviderProtocolError, True),
}


@pytest.fixture(autouse=True)
def works_by_default(server: FaultServer) -> None:
    server.behave(faults.anthropic_ok())


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("name", FAULTS)
async def test_every_fault_raises_the_right_error(
    name: str, streaming: bool, server: FaultServer, anthropic: AnthropicProvider
) -> None:
    behaviour, kind, retryable = FAULTS[name]
    server.behave(behaviour)
    with pytest.raises(ProviderError) as caught:
        await anthropic.complete(ask(timeout_s=60.0), (lambda _: None) if streaming else None)
    assert (type(caught.value), caught.value.retryable) == (kind, retryable)
    assert KEY not in str(caught.value) + repr(caught.value) + (caught.value.body or "")
    await server.until_idle()


async def test_a_whole_answer(server: FaultServer, anthropic: AnthropicProvider) -> None:
    reply = await anthropic.complete(ask())
    (completion,) = reply.completions
    assert (completion.text, completion.tokens, completion.finish) == ("Answer: 4", (), "stop")
    assert (reply.usage, reply.model) == (Usage(16, 4, 5, 0, written=2), "claude")
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/v1/messages")
    assert (request.headers["x-api-key"], request.headers["anthropic-version"]) == (KEY, "2023-06-01")
    assert "authorization" not in request.headers


async def test_a_base_url_may_end_in_v1(server: FaultServer) -> None:
    provider = AnthropicProvider("claude", server.origin + "/v1/")
    await provider.complete(ask())
    await provider.close()
    assert server.requests[0].path == "/v1/messages"


class TestBody:
    def test_all_fields(self) -> None:
        messages = (Message("system", "Be brief."), Message("user", "2 + 2?"), Message("system", "Really."))
        sampling = Sampling(temperature=0.3, max_tokens=7, stop=("\n\n", "Q:"), seed=42)
        assert messages_body(ask(messages=messages, sampling=sampling, n=5), stream=True) == {
            "model": "m",
            "system": "Be brief.\n\nReally.",
            "messages": [{"role": "user", "content": "2 + 2?"}],
            "max_tokens": 7,
            "temperature": 0.3,
            "stop_sequences": ["Q:"],
            "stream": True,
        }

    def test_quirks_can_turn_temperature_into_top_p(self) -> None:
        body = messages_body(ask(drop=("temperature",), extra={"top_p": 0.9}))
        assert set(body) == {"model", "messages", "max_tokens", "top_p"}

    def test_images(self) -> None:
        images = (Image("image/png", b"..."), Image("image/png", url="https://x/y.png"))
        (message,) = messages_body(ask(messages=(Message("user", "what?", images),)))["messages"]
        assert message["content"] == [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "Li4u"}},
            {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
            {"type": "text", "text": "what?"},
        ]


class TestReply:
    @pytest.mark.parametrize(
        ("reported", "finish"),
        [
            ("end_turn", "stop"),
            ("stop_sequence", "stop"),
            ("max_tokens", "length"),
            ("refusal", "content_filter"),
            (None, "stop"),
        ],
    )
    def test_finish_reasons(self, reported: str | None, finish: str) -> None:
        assert read_message(message_payload("4", stop_reason=reported)).completions[0].finish == finish

    def test_counted_thinking_is_read(self) -> None:
        usage = {"input_tokens": 3, "output_tokens": 9, "output_tokens_details": {"thinking_tokens": 7}}
        content = [{"type": "thinking", "thinking": "2 and 2"}, {"type": "text", "text": "4"}]
        assert read_message(message_payload("", content=content, usage=usage)).usage.reasoning == 7

    def test_cache_writes_are_read_by_lifetime(self) -> None:
        usage = {
            "input_tokens": 10,
            "output_tokens": 5,
            "cache_read_input_tokens": 4,
            "cache_creation_input_tokens": 30,
            "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
        }
        assert read_message(message_payload("4", usage=usage)).usage == Usage(44, 4, 5, 0, 30, 20)

    @pytest.mark.parametrize(
        "extra",
        [
            {"server_tool_use": {"web_search_requests": 1}},
            {"service_tier": "priority"},
            {"speed": "fast"},
            {"inference_geo": "us"},
        ],
    )
    def test_usage_without_a_token_price_is_unpriced(self, extra: dict[str, Any]) -> None:
        usage = {"input_tokens": 3, "output_tokens": 9}
        assert read_message(message_payload("4", usage=usage | extra)).usage.unpriced
        plain = {"service_tier": "standard", "server_tool_use": {"web_search_requests": 0}, "inference_geo": None}
        assert not read_message(message_payload("4", usage=usage | plain)).usage.unpriced

    def test_thinking_is_not_part_of_the_answer(self) -> None:
        content = [{"type": "thinking", "thinking": "2 and 2"}, {"type": "text", "text": "4"}]
        reply = read_message(message_payload("", content=content))
        assert (reply.completions[0].text, reply.usage) == ("4", Usage(16, 4, 5, None, written=2))

    @pytest.mark.parametrize(
        ("usage", "read"),
        [
            (None, Usage()),
            ({"input_tokens": 3, "output_tokens": 2}, Usage(3, 0, 2, 0, 0, 0)),
            ({"input_tokens": None, "output_tokens": 2}, Usage(None, None, 2, 0)),
            ({"input_tokens": 3}, Usage(3, 0, None, None, 0, 0)),
        ],
    )
    def test_unreported_usage_is_unknown(self, usage: Any, read: Usage) -> None:
        assert read_message(message_payload("4", usage=usage)).usage == read


class TestSamples:
    async def test_a_request_returns_one_sample(self, server: FaultServer, anthropic: AnthropicProvider) -> None:
        """The API has no `n`; an agent sends one request per sample."""
        reply = await anthropic.complete(ask(n=5))
        assert [completion.text for completion in reply.completions] == ["Answer: 4"]
        assert reply.usage == Usage(16, 4, 5, 0, written=2)
        assert ["n" in request.json for request in server.requests] == [False]


class TestStreaming:
    async def test_text_is_streamed(self, server: FaultServer, anthropic: AnthropicProvider) -> None:
        server.behave(faults.anthropic_ok("one two three"))
        texts: list[str] = []
        reply = await anthropic.complete(ask(), lambda delta: texts.append(delta.text))
        assert texts == ["one ", "two ", "three"]
        assert reply.completions[0].text == "one two three"
        assert (reply.usage, reply.model) == (Usage(10, 0, 3, 0, 0, 0), "claude")

    async def test_thinking_is_streamed_separately(self, server: FaultServer, anthropic: AnthropicProvider) -> None:
        thinking = [
            {"type": "content_block_start", "content_block": {"type": "thinking", "thinking": ""}},
            {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "hm"}},
        ]
        start, *rest = message_events("4")
        server.behave(faults.events([start, *thinking, *rest], done=False))
        deltas: list[tuple[str, str]] = []
        reply = await anthropic.complete(ask(), lambda delta: deltas.append((delta.thinking, delta.text)))
        assert (deltas, reply.usage.reasoning) == ([("hm", ""), ("", "4")], None)

    async def test_an_error_in_the_middle_is_not_retried(
        self, server: FaultServer, anthropic: AnthropicProvider
    ) -> None:
        error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
        server.behave(faults.events([*message_events("one two")[:4], error], done=False))
        texts: list[str] = []
        with pytest.raises(ProviderError, match="overloaded_error") as caught:
            await anthropic.complete(ask(), lambda delta: texts.append(delta.text))
        assert (texts, caught.value.status, caught.value.retryable) == (["one "], 529, True)
        assert len(server.requests) == 1

    @pytest.mark.parametrize("length", [1, 4, 7])
    async def test_an_incomplete_stream_is_an_error(
        self, length: int, server: FaultServer, anthropic: AnthropicProvider
    ) -> None:
        server.behave(faults.events(message_events("one two")[:length], done=False))
        with pytest.raises(ProviderUnreachable, match="broke off"):
            await anthropic.complete(ask(), lambda _: None)

    async def test_a_stream_without_a_start_is_an_error(
        self, server: FaultServer, anthropic: AnthropicProvider
    ) -> None:
        server.behave(faults.events([{"type": "message_stop"}], done=False))
        with pytest.raises(ProviderProtocolError):
            await anthropic.complete(ask(), lambda _: None)


async def test_check_counts_models(server: FaultServer, anthropic: AnthropicProvider) -> None:
    server.behave(faults.models(7))
    assert await anthropic.check() == "7 models"
    assert server.requests[-1].path == "/v1/models?limit=1000"
