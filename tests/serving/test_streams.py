"""Streams with failures, delays and disconnects."""

from __future__ import annotations

import asyncio
import json

import anthropic
import openai
import pytest

from support.fault_server import dies_mid_stream, echo_n, hang, ok, status, trickle
from support.gateway import turn
from support.waiting import until

BODY = {"model": "odar-simple", "messages": turn(), "stream": True}
MESSAGE = {"model": "odar-simple", "max_tokens": 9, "messages": turn(), "stream": True}


async def test_a_broken_upstream_ends_in_an_error_event(live, up, slow):
    up.behave(dies_mid_stream("one two three", after=3))
    code, text = await live.text("/v1/chat/completions", BODY)
    *_, last = [line for line in text.split("\n\n") if line]
    assert code == 200
    assert '"content":"one "' in text
    assert "[DONE]" not in text
    error = json.loads(last.removeprefix("data: "))["error"]
    assert (error["type"], error["code"]) == ("api_error", "upstream_failed")
    assert slow.requests == []  # half an answer cannot be followed by another
    assert (await live.entry()).http_status == 502


async def test_the_sdks_raise_the_error_event(live, up):
    up.behave(dies_mid_stream("one two three", after=3))
    stream = await live.openai.chat.completions.create(**BODY)
    with pytest.raises(openai.APIError, match="broke off"):
        [chunk async for chunk in stream]
    with pytest.raises(anthropic.APIError, match="broke off"):
        async with live.anthropic.messages.stream(model="quick", max_tokens=9, messages=turn()) as events:
            [piece async for piece in events.text_stream]
    async with live.openai.responses.stream(model="quick", input="Hi") as events:
        kinds = [event.type async for event in events]
    assert kinds[-1] == "response.failed"


async def test_an_upstream_that_fails_before_the_first_token_is_replaced(live, up, slow):
    up.behave(dies_mid_stream(after=0))
    slow.behave(ok("It is four."))
    stream = await live.openai.chat.completions.create(**BODY)
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "It is four."
    assert (await live.entry()).trace.degradations


@pytest.mark.parametrize("path", ["medium", "hard"])
async def test_keepalives_are_sent_at_once_and_every_few_seconds(start, up, slow, path):
    live = await start(constants={"odar.serving.protocols.reply.KEEPALIVE_S": 0.05})
    may_answer = asyncio.Event()

    async def answers_when_told(exchange):
        await may_answer.wait()
        await echo_n("It is four.")(exchange)

    slow.behave(answers_when_told)
    async with live.http.post(live.url + "/v1/chat/completions", json=BODY | {"model": f"odar-{path}"}) as response:
        text = (await response.content.readany()).decode()
        assert text.startswith(": ")
        assert "x-odar-difficulty" in response.headers
        assert "x-odar-path" not in response.headers, "not known before the answer"
        while text.count(": odar is working") < 2:
            text += (await response.content.readany()).decode()
        may_answer.set()
        rest = (await response.read()).decode()
    assert rest.endswith("data: [DONE]\n\n")


async def test_responses_send_keepalives_as_events_for_codex(start, up, slow):
    live = await start(constants={"odar.serving.protocols.reply.KEEPALIVE_S": 0.05})
    may_answer = asyncio.Event()

    async def answers_when_told(exchange):
        await may_answer.wait()
        await echo_n("It is four.")(exchange)

    slow.behave(answers_when_told)
    stream = await live.openai.responses.create(model="odar-medium", input="What is 2 + 2?", stream=True)
    events = []
    async for event in stream:
        events.append(event)
        if sum(each.type == "response.in_progress" for each in events) == 4:
            may_answer.set()
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1].type == "response.completed"
    assert [event.sequence_number for event in events] == list(range(len(events)))


async def test_a_failure_after_a_keepalive_is_an_event(live, up, slow):
    up.behave(status(500))
    slow.behave(status(500))
    code, text = await live.text("/v1/chat/completions", BODY | {"model": "odar-hard"})
    assert code == 200
    error = json.loads(text.strip().split("data: ")[-1])["error"]
    assert "no agent produced an answer" in error["message"]
    code, text = await live.text("/v1/messages", MESSAGE | {"model": "odar-hard"})
    assert "event: error" in text
    assert "message_stop" not in text


async def test_a_failure_before_the_first_token_keeps_its_status(live, up, slow):
    up.behave(status(401))
    slow.behave(status(401))
    assert (await live.text("/v1/chat/completions", BODY))[0] == 401


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["simple", "medium", "hard"])
async def test_a_disconnecting_client_cancels_all_upstream_work(live, up, slow, path, stream):
    up.behave(hang() if path != "medium" else ok("four"))
    slow.behave(hang())
    body = BODY | {"model": f"odar-{path}", "stream": stream}
    task = asyncio.create_task(live.text("/v1/chat/completions", body))
    await until(lambda: up.busy if path == "simple" else slow.busy)
    task.cancel()
    await up.until_idle(connections=0 if path == "simple" else None)
    await slow.until_idle(connections=0)
    entry = await live.entry()
    assert entry.http_status == 499
    assert (entry.path, entry.trace.spend.cost_usd) == (path, None), "cut off calls may be billed: unknown"
    assert {call.error for call in entry.trace.calls} == (
        {"cancelled"} if path != "medium" else {None, "cancelled"}
    )
    assert entry.trace.spend.calls == {"simple": 1, "medium": 2, "hard": 6}[path]
    assert live.service.concurrency_limit.in_flight == 0


async def test_a_client_that_disconnects_during_the_text_cancels_upstream_work(live, up):
    up.behave(trickle("word " * 500, every_s=0.01, stream=True))
    async with live.http.post(live.url + "/v1/chat/completions", json=BODY) as response:
        await response.content.readany()
    await up.until_idle(connections=0)
    assert live.service.concurrency_limit.in_flight == 0
