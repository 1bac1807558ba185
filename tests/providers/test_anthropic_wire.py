"""Tools, results and formats translated to and from the Anthropic protocol."""

from __future__ import annotations

from typing import Any

import pytest

from odar.conversation import ChatParameters, Format, Image, Message, Tool, ToolCall, ToolChoice, Wire
from odar.errors import ProviderError
from odar.providers.anthropic import JSON_ONLY, StreamedMessage, messages_body, read_message
from odar.providers.base import Sampling
from support.payloads import message_payload
from support.requests import ask

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = Tool("weather", "How is it?", SCHEMA)


def body_of(parameters: ChatParameters, **fields: Any) -> dict[str, Any]:
    return messages_body(ask(parameters=parameters, **fields))


def test_tools_are_sent() -> None:
    body = body_of(ChatParameters(tools=(WEATHER, Tool("now"))))
    assert body["tools"] == [
        {"name": "weather", "description": "How is it?", "input_schema": SCHEMA},
        {"name": "now", "input_schema": {"type": "object", "properties": {}}},
    ]
    assert "tool_choice" not in body


@pytest.mark.parametrize(
    ("choice", "parallel", "sent"),
    [
        (ToolChoice("auto"), None, {"type": "auto"}),
        (ToolChoice("required"), False, {"type": "any", "disable_parallel_tool_use": True}),
        (ToolChoice("tool", "weather"), None, {"type": "tool", "name": "weather"}),
        (ToolChoice("none"), False, {"type": "none"}),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
    ],
)
def test_tool_choice_is_translated(choice: ToolChoice | None, parallel: bool | None, sent: dict[str, Any]) -> None:
    parameters = ChatParameters(tools=(WEATHER,), tool_choice=choice, parallel_tools=parallel)
    assert body_of(parameters)["tool_choice"] == sent


def test_tool_results_share_a_turn_with_the_following_text() -> None:
    messages = (
        Message("user", "Rome and Oslo?"),
        Message("assistant", "Let me see.", tool_calls=(ToolCall("1", "weather", '{"city": "Rome"}'),)),
        Message("tool", "sunny", tool_call_id="1"),
        Message("tool", "rain", tool_call_id="2", images=(Image("image/png", b"..."),)),
        Message("user", "So?"),
    )
    _, call, results = messages_body(ask(messages=messages))["messages"]
    assert call["content"] == [
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "1", "name": "weather", "input": {"city": "Rome"}},
    ]
    assert [block["type"] for block in results["content"]] == ["tool_result", "tool_result", "text"]
    assert results["content"][1]["content"][1]["type"] == "image"


def test_original_blocks_are_sent_unchanged() -> None:
    system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    turn = {"role": "user", "content": [{"type": "document", "source": {}}]}
    messages = (
        Message("system", "Be brief.", wire=Wire("anthropic", {"content": system})),
        Message("user", "", wire=Wire("anthropic", turn), untranslated=("document",)),
    )
    body = messages_body(ask(messages=messages))
    assert (body["system"], body["messages"]) == (system, [turn])
    foreign = Message("user", "", wire=Wire("openai", {}), untranslated=("input_audio",))
    with pytest.raises(ProviderError, match="input_audio"):
        messages_body(ask(messages=(foreign,)))


def test_response_formats_are_translated() -> None:
    body = body_of(ChatParameters(format=Format(SCHEMA)))
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}
    assert body_of(ChatParameters(format=Format()))["system"] == JSON_ONLY


@pytest.mark.parametrize(
    ("sampling", "parameters", "sent"),
    [
        (Sampling(), ChatParameters(), {"temperature": 0.2}),
        (Sampling(temperature=1.7), ChatParameters(), {"temperature": 1.0}),
        (Sampling(top_p=0.5), ChatParameters(top_p=0.5), {"top_p": 0.5}),
        (Sampling(None, None, None), ChatParameters(), {}),
    ],
)
def test_only_one_of_temperature_and_top_p_is_sent(
    sampling: Sampling, parameters: ChatParameters, sent: dict[str, float]
) -> None:
    body = body_of(parameters, sampling=sampling)
    assert {name: body[name] for name in ("temperature", "top_p") if name in body} == sent
    assert body["max_tokens"] == (sampling.max_tokens or 16_000)


def test_user_is_translated_and_foreign_fields_are_not_sent() -> None:
    body = body_of(ChatParameters(user="ann", extra={"service_tier": "flex"}))
    assert body["metadata"] == {"user_id": "ann"}
    assert "service_tier" not in body
    assert body_of(ChatParameters(protocol="anthropic", extra={"top_k": 5}))["top_k"] == 5


def test_a_tool_call_is_the_same_whole_and_streamed() -> None:
    block = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Rome"}}
    (whole,) = read_message(message_payload("", content=[block], stop_reason="tool_use")).completions
    assert whole.tool_calls == (ToolCall("t1", "weather", '{"city": "Rome"}'),)
    assert whole.finish == "tool_calls"
    streamed = StreamedMessage()
    events = [
        {"type": "message_start", "message": {"model": "claude"}},
        {"type": "content_block_start", "content_block": {**block, "input": {}}},
        {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": '{"city": '}},
        {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": '"Rome"}'}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ]
    pieces = [piece for event in events if (piece := streamed.feed(event)).tool_calls]
    assert [piece.tool_calls[0][1].name for piece in pieces] == ["weather", "", ""]
    assert streamed.reply().completions[0].tool_calls == whole.tool_calls


def test_text_at_the_start_of_a_block_is_streamed():
    streamed = StreamedMessage()
    events = [
        {"type": "message_start", "message": {"model": "claude"}},
        {"type": "content_block_start", "content_block": {"type": "thinking", "thinking": "Two "}},
        {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "pairs."}},
        {"type": "content_block_start", "content_block": {"type": "text", "text": "It is"}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": " 4."}},
        {"type": "message_stop"},
    ]
    deltas = [streamed.feed(event) for event in events]
    assert "".join(delta.thinking for delta in deltas) == "Two pairs."
    assert "".join(delta.text for delta in deltas) == streamed.reply().completions[0].text == "It is 4."


def test_a_text_that_is_not_a_string_is_an_error():
    streamed = StreamedMessage()
    streamed.feed({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    with pytest.raises(TypeError, match="text is a bool"):
        streamed.feed({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": True}})


def test_the_effort_of_a_model_is_sent_beside_the_format() -> None:
    form = Format(SCHEMA)
    body = body_of(
        ChatParameters(format=form, effort="low"), effort="high", extra={"thinking": {"type": "adaptive"}}
    )
    assert body["output_config"] == {"effort": "high", "format": {"type": "json_schema", "schema": SCHEMA}}
    assert body["thinking"] == {"type": "adaptive"} and "temperature" not in body


def test_a_thinking_budget_must_leave_room_for_the_answer() -> None:
    extra = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    for longest, sent in ((2000, True), (1000, False)):  # the client's own limit
        body = messages_body(ask(effort="minimal", extra=extra, sampling=Sampling(max_tokens=longest)))
        assert ("thinking" in body) == sent and "output_config" not in body
