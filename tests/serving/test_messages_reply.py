"""An answer in the Anthropic format, whole and streamed."""

from __future__ import annotations

import dataclasses
import json

import pytest

from odar.conversation import ToolCall, Wire
from odar.providers.base import Delta
from odar.serving.protocols.chat_request import ChatRequest
from odar.serving.protocols.messages import MessageWriter, anthropic_usage
from odar.types import Answer, Query, Spend, Usage
from support.traces import make_answer

ASK = ChatRequest("odar", Query("2 + 2?"))


def answered(text: str = "Answer: 4", finish: str = "stop", *calls: ToolCall) -> Answer:
    answer = make_answer()
    said = dataclasses.replace(answer.trace.candidates[1], text=text, finish=finish, tool_calls=calls)
    candidates = (answer.trace.candidates[0], said)
    return dataclasses.replace(answer, trace=dataclasses.replace(answer.trace, candidates=candidates))


def events(stream: bytes) -> list[dict]:
    return [json.loads(part.partition(b"data: ")[2]) for part in stream.split(b"\n\n") if part]


def test_a_text_becomes_a_text_block():
    message = MessageWriter(ASK, "t").body(answered())
    assert message["content"] == [{"type": "text", "text": "Answer: 4"}]
    assert (message["stop_reason"], message["role"], message["model"]) == ("end_turn", "assistant", "odar")


@pytest.mark.parametrize(
    ("finish", "reason"),
    [("length", "max_tokens"), ("tool_calls", "tool_use"), ("content_filter", "refusal"), ("eos", "end_turn")],
)
def test_finish_reasons_become_stop_reasons(finish, reason):
    answer = answered("so", finish)
    assert MessageWriter(ASK, "t").body(answer)["stop_reason"] == reason
    *_, delta, _ = events(MessageWriter(ASK, "t").end(answer))
    assert delta["delta"]["stop_reason"] == reason


def test_the_stop_reason_of_anthropic_is_kept_in_streams():
    answer = answered("so")
    stop = {"stop_reason": "stop_sequence", "stop_sequence": "END"}
    wire = Wire("anthropic", {"content": [{"type": "text", "text": "so"}], **stop})
    winner = dataclasses.replace(answer.trace.candidates[1], wire=wire)
    trace = dataclasses.replace(answer.trace, candidates=(answer.trace.candidates[0], winner))
    answer = dataclasses.replace(answer, trace=trace)
    assert MessageWriter(ASK, "t").body(answer).items() >= stop.items()
    *_, delta, _ = events(MessageWriter(ASK, "t").end(answer))
    assert delta["delta"] == stop


def test_calls_without_ids_get_one_each_in_a_stream():
    stream = MessageWriter(ASK, "t")
    sent = events(b"".join(stream.piece(Delta(tool_calls=((i, ToolCall("", "now", "{}")),))) for i in range(2)))
    starts = [event["content_block"] for event in sent if event["type"] == "content_block_start"]
    assert len({block["id"] for block in starts}) == 2


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ('{"city": "Rome"}', {"city": "Rome"}),
        ("", {}),
        ('{"city": ', {"arguments": '{"city": '}),  # broken: the client shall see it
        ("[1, 2]", {"arguments": [1, 2]}),  # the API knows objects only
        ("[" * 500 + "]" * 500, {"arguments": "[" * 500 + "]" * 500}),
    ],
)
def test_the_arguments_of_a_call_are_an_object(arguments, sent):
    call = ToolCall("t1", "weather", arguments)
    text, block = MessageWriter(ASK, "t").body(answered("Let me see.", "tool_calls", call))["content"]
    assert text == {"type": "text", "text": "Let me see."}
    assert block == {"type": "tool_use", "id": "t1", "name": "weather", "input": sent}


def test_a_call_without_an_id_gets_one():
    (block,) = MessageWriter(ASK, "t").body(answered("", "tool_calls", ToolCall("", "now", "{}")))["content"]
    assert block["id"].startswith("call_")


def test_a_stream_without_deltas_contains_the_whole_answer():
    call = ToolCall("t1", "weather", '{"city": "Rome"}')
    sent = events(MessageWriter(ASK, "t").end(answered("Let me see what it is like there.", "tool_calls", call)))
    kinds = [event["type"] for event in sent]
    assert kinds[0] == "content_block_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 2
    texts = [event["delta"]["text"] for event in sent if event.get("delta", {}).get("type") == "text_delta"]
    assert "".join(texts) == "Let me see what it is like there."
    (start,) = [e for e in sent if e["type"] == "content_block_start" and e["content_block"]["type"] == "tool_use"]
    assert start["content_block"] == {"type": "tool_use", "id": "t1", "name": "weather", "input": {}}


def test_usage_follows_anthropic_counting():
    assert anthropic_usage(Spend(1, Usage(100, 30, 7, None, 20), 0.5, 1.0)) == {
        "input_tokens": 50,
        "cache_creation_input_tokens": 20,
        "cache_read_input_tokens": 30,
        "output_tokens": 7,
        "cost": 0.5,
    }
    assert anthropic_usage(Spend(1, Usage(), None, 1.0))["input_tokens"] is None
