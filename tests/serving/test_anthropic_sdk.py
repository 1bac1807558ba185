"""The anthropic SDK with the gateway, in front of OpenAI-compatible and Anthropic upstreams."""

from __future__ import annotations

import base64
import json

import anthropic
import pytest

from support.fault_server import FaultServer, answer, anthropic_error, anthropic_ok, echo_n, ok
from support.gateway import PNG, call_events, call_payload, turn
from support.payloads import message_payload

PATHS = ["odar-simple", "odar-medium", "odar-hard", "quick"]
WEATHER = {
    "name": "weather",
    "description": "How is the weather?",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@pytest.fixture(autouse=True)
def behaviour(up: FaultServer, slow: FaultServer) -> None:
    up.behave(ok("It is four."))
    slow.behave(echo_n("It is four."))


@pytest.mark.parametrize("model", ["odar", *PATHS])
async def test_a_message_is_answered(live, up, slow, model):
    message = await live.anthropic.messages.create(
        model=model,
        max_tokens=50,
        system="Be brief.",
        messages=turn(),
        stop_sequences=["X"],
        extra_body={"temperature": 0.5},
    )
    assert (message.content[0].text, message.stop_reason, message.role) == ("It is four.", "end_turn", "assistant")
    assert message.usage.input_tokens >= 10
    assert message.usage.output_tokens >= 3
    sent = (up.requests or slow.requests)[0].json
    assert sent["messages"] == [{"role": "system", "content": "Be brief."}, *turn()]
    assert (sent["max_tokens"], sent["stop"], sent["temperature"]) == (50, ["X"], 0.5)


@pytest.mark.parametrize("model", PATHS)
async def test_a_message_is_streamed(live, model):
    async with live.anthropic.messages.stream(model=model, max_tokens=50, messages=turn()) as stream:
        text = "".join([piece async for piece in stream.text_stream])
        message = await stream.get_final_message()
    assert text == message.content[0].text == "It is four."
    assert message.stop_reason == "end_turn"
    assert message.usage.input_tokens >= 10
    assert message.usage.output_tokens >= 3


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", PATHS)
async def test_tools_can_be_called(live, up, slow, model, stream):
    async def behave(exchange):
        if exchange.json.get("stream"):
            await exchange.send_events(call_events(['{"city": ', '"Rome"}']))
        else:
            await exchange.send_json(call_payload('{"city": "Rome"}'))

    up.behave(behave)
    slow.behave(behave)
    options = {"model": model, "max_tokens": 50, "tools": [WEATHER], "tool_choice": {"type": "any"}}
    if stream:
        async with live.anthropic.messages.stream(messages=turn("Rome?"), **options) as events:
            message = await events.get_final_message()
    else:
        message = await live.anthropic.messages.create(messages=turn("Rome?"), **options)
    (block,) = message.content
    assert (message.stop_reason, block.type, block.name, block.input) == (
        "tool_use",
        "tool_use",
        "weather",
        {"city": "Rome"},
    )
    sent = up.requests[0].json
    assert sent["tool_choice"] == "required"
    assert sent["tools"][0]["function"]["parameters"] == WEATHER["input_schema"]
    up.behave(ok("Sunny."))
    slow.behave(echo_n("Sunny."))
    again = [
        *turn("Rome?"),
        {"role": "assistant", "content": [b.model_dump() for b in message.content]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": block.id, "content": "sunny"}]},
    ]
    message = await live.anthropic.messages.create(model=model, max_tokens=50, tools=[WEATHER], messages=again)
    assert message.content[0].text == "Sunny."
    assert [m["role"] for m in up.requests[-1].json["messages"]] == ["user", "assistant", "tool"]


async def test_images_and_schemas_are_accepted(live, up):
    up.behave(ok('{"city": "Rome"}'))
    data = base64.b64encode(PNG).decode()
    content = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
        {"type": "text", "text": "Where is this?"},
    ]
    message = await live.anthropic.messages.create(
        model="odar-simple",
        max_tokens=50,
        messages=[{"role": "user", "content": content}],
        output_config={"format": {"type": "json_schema", "schema": WEATHER["input_schema"]}},
    )
    assert json.loads(message.content[0].text) == {"city": "Rome"}
    sent = up.requests[0].json
    assert sent["messages"][0]["content"][1]["image_url"]["url"] == f"data:image/png;base64,{data}"
    assert sent["response_format"]["json_schema"]["schema"] == WEATHER["input_schema"]


class TestAnthropicUpstream:
    """Requests that stay in one protocol are passed on unchanged."""

    @pytest.fixture
    async def same(self, start, slow):
        slow.behave(anthropic_ok("It is four."))
        return await start(slow_kind="anthropic")

    async def test_pass_through_is_unchanged(self, same, slow):
        system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
        turns = [{"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "d"}}]}]
        body = {
            "model": "deep",
            "max_tokens": 50,
            "system": system,
            "messages": turns,
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "metadata": {"user_id": "ann"},
        }
        status_, _, reply = await same.post("/v1/messages", body)
        assert (status_, slow.requests[0].json) == (200, body)
        assert reply["content"] == [{"type": "text", "text": "It is four."}]
        assert reply["usage"] == {
            "input_tokens": 10,
            "cache_creation_input_tokens": 2,
            "cache_read_input_tokens": 4,
            "output_tokens": 5,
            "cost": None,
        }

    async def test_thinking_blocks_are_returned_unchanged(self, same, slow):
        blocks = [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "four"}]
        slow.behave(answer(message_payload("", content=blocks)))
        message = await same.anthropic.messages.create(model="deep", max_tokens=50, messages=turn())
        assert [block.type for block in message.content] == ["thinking", "text"]

    async def test_chat_completions_with_an_anthropic_provider(self, same, slow):
        block = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Rome"}}
        slow.behave(answer(message_payload("", content=[block], stop_reason="tool_use")))
        tool = {"type": "function", "function": {"name": "weather", "parameters": WEATHER["input_schema"]}}
        reply = await same.openai.chat.completions.create(model="deep", messages=turn(), tools=[tool], seed=3)
        (call,) = reply.choices[0].message.tool_calls
        assert (call.id, json.loads(call.function.arguments)) == ("t1", {"city": "Rome"})
        assert slow.requests[0].json["tools"] == [{"name": "weather", "input_schema": WEATHER["input_schema"]}]
        assert slow.requests[0].json["max_tokens"] == 16_000

    async def test_untranslatable_content_is_rejected(self, same):
        part = {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}
        body = {"model": "deep", "messages": [{"role": "user", "content": [part]}]}
        status_, _, reply = await same.post("/v1/chat/completions", body)
        assert (status_, reply["error"]["code"]) == (400, "unsupported_content")

    async def test_streams_are_translated_in_both_directions(self, same):
        async with same.anthropic.messages.stream(model="deep", max_tokens=50, messages=turn()) as stream:
            assert (await stream.get_final_message()).content[0].text == "It is four."
        chunks = await same.openai.chat.completions.create(model="deep", messages=turn(), stream=True)
        assert "".join([c.choices[0].delta.content or "" async for c in chunks]) == "It is four."

    async def test_anthropic_errors_are_passed_on_unchanged(self, same, slow):
        slow.behave(anthropic_error(529, "overloaded_error", "too busy"))
        with pytest.raises(anthropic.APIStatusError) as caught:
            await same.anthropic.messages.create(model="deep", max_tokens=50, messages=turn())
        assert caught.value.status_code == 529
        assert caught.value.body["error"] == {"type": "overloaded_error", "message": "too busy", "provider": "s"}
