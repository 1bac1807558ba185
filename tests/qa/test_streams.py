"""Any stream gives a reply or a provider error, independently of its chunks."""

from __future__ import annotations

import json

import pytest
from fuzz.strategies import chunks, examples, json_values, mutated
from fuzz.wire import streamed, whole
from hypothesis import given
from hypothesis import strategies as st

from odar.errors import ProviderError
from odar.providers.anthropic import StreamedMessage, read_message
from odar.providers.base import Reply
from odar.providers.openai import StreamedReply, read_reply
from support.gateway import call_events, call_payload
from support.payloads import chat_events, chat_payload, message_events, message_payload

CHAT = chat_events("<think>hm</think>It is 4 é 😀.\nAnswer: 4")
TOOLS = call_events(['{"city"', ': "Rome"}'])
MESSAGE = message_events("It is 4.\nAnswer: 4")
KINDS = {"chat": (StreamedReply, (CHAT, TOOLS)), "message": (StreamedMessage, (MESSAGE,))}


def encoded(events: list[object], newline: bytes = b"\n", *, done: bool = True) -> bytes:
    data = [json.dumps(event, ensure_ascii=False).encode() for event in events] + [b"[DONE]"] * done
    return b"".join(b"data: " + each + newline * 2 for each in data)


def judged(result: Reply | ProviderError) -> object:
    """Return the comparable part: the message of an error, or the reply."""
    return str(result) if isinstance(result, ProviderError) else result


@pytest.mark.parametrize("kind", KINDS)
def test_the_unmutated_streams_are_valid(kind):
    collector, good = KINDS[kind]
    for events in good:
        assert isinstance(streamed([encoded(events, done=kind == "chat")], collector())[0], Reply)


@pytest.mark.parametrize("kind", KINDS)
@examples(60)
@given(data=st.data())
def test_mutated_streams_give_the_same_result_in_any_chunks(kind, data):
    collector, good = KINDS[kind]
    events = data.draw(mutated(*good))
    newline = data.draw(st.sampled_from([b"\n", b"\r", b"\r\n"]))
    stream = encoded(events, newline, done=data.draw(st.booleans()))
    at_once = streamed([stream], collector())
    in_pieces = streamed(data.draw(chunks(stream)), collector())
    assert judged(at_once[0]) == judged(in_pieces[0])
    assert at_once[1] == in_pieces[1]


@pytest.mark.parametrize("kind", KINDS)
@examples(60)
@given(data=st.data())
def test_truncated_streams_are_replies_or_errors(kind, data):
    collector, good = KINDS[kind]
    stream = encoded(data.draw(st.sampled_from(good)))
    at = data.draw(st.integers(0, len(stream)))
    result, text = streamed([stream[:at], data.draw(st.binary(max_size=40))], collector())
    if isinstance(result, Reply):
        assert result.completions[0].text.startswith(text.strip()) or text.strip() in result.completions[0].text


@pytest.mark.parametrize("kind", KINDS)
@examples(40)
@given(events=st.lists(json_values, max_size=5), done=st.booleans())
def test_any_events_are_replies_or_errors(kind, events, done):
    streamed([encoded(events, done=done)], KINDS[kind][0]())


@pytest.mark.parametrize(
    ("interpret", "good"),
    [
        (read_reply, (chat_payload("Answer: 4", "Answer: 5"), call_payload("{}"))),
        (read_message, (message_payload("Answer: 4"),)),
    ],
    ids=["chat", "message"],
)  # fmt: skip
@examples(80)
@given(data=st.data())
def test_mutated_replies_are_read_or_rejected(interpret, good, data):
    payload = data.draw(mutated(*good))
    result = whole(json.dumps(payload).encode(), interpret)
    if isinstance(result, Reply):
        for completion in result.completions:
            completion.text.encode()
            assert all(isinstance(each.text, str) for each in completion.tokens)
            assert isinstance(completion.finish, str)
            for call in completion.tool_calls:
                assert all(isinstance(part, str) for part in (call.id, call.name, call.arguments))
        counts = (result.usage.input, result.usage.output, result.usage.cached, result.usage.reasoning)
        assert all(count is None or (type(count) is int and count >= 0) for count in counts)


@given(st.binary(max_size=100))
@examples(60)
def test_any_body_is_read_or_rejected(body):
    whole(body, read_reply)
    whole(body, read_message)
