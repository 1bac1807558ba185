"""One client or model server must not make the gateway unavailable to others."""

from __future__ import annotations

import asyncio
import base64
import json
import threading

import pytest

from odar.served.alignment import ServedAlignment
from support.fault_server import hang, ok, status
from support.gateway import PNG, turn
from support.live_gateway import api_key
from support.waiting import until

CHAT = "/v1/chat/completions"


def body(model="quick", **more):
    return {"model": model, "messages": turn(), **more}


async def statuses(live, count, **request):
    answers = await asyncio.gather(*(live.post(CHAT, body(**request)) for _ in range(count)))
    return {answer[0] for answer in answers}


# ── what counts against a provider (item 7) ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("model", ["quick", "odar-simple"])
async def test_a_deadline_of_the_client_does_not_open_the_breaker(start, up, model):
    live = await start(constants={"odar.providers.breaker.FAILURES": 2})
    up.behave(hang())
    assert await statuses(live, 5, model=model, odar={"deadline_s": 0.05}) == {504}
    up.behave(ok("Answer: 4"))
    assert await statuses(live, 3, model="quick") == {200}


async def test_the_configured_deadline_opens_the_breaker(start, up):
    live = await start(constants={"odar.providers.breaker.FAILURES": 2}, limits__deadline_s=0.3)
    up.behave(hang())
    assert await statuses(live, 3) == {504}
    assert await statuses(live, 1) == {503}


async def test_an_unconfigured_model_does_not_open_the_breaker(start, up):
    live = await start(constants={"odar.providers.breaker.FAILURES": 2})
    up.behave(status(503))
    assert await statuses(live, 5, model="f/missing") == {503}
    up.behave(ok("Answer: 4"))
    assert await statuses(live, 3) == {200}


async def test_disconnecting_clients_do_not_open_the_breaker(start, up):
    live = await start(constants={"odar.providers.breaker.FAILURES": 2})
    up.behave(hang())
    for _ in range(4):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await live.post(CHAT, body())
    await up.until_idle()
    up.behave(ok("Answer: 4"))
    assert await statuses(live, 3) == {200}


# ── statuses by type, not by words (item 13) ────────────────────────────────────────────────────────────────


async def test_a_model_named_deadline_is_not_a_timeout(start):
    models = {"deadline-7b": {"provider": "f"}, "deep": {"provider": "s"}}
    live = await start(models=models, fast__model="deadline-7b", slow__model="deep")
    code, _, answer = await live.post(CHAT, body("deadline-7b", max_tokens=9, odar={"max_cost_usd": 0.001}))
    assert (code, answer["error"]["code"]) == (422, "budget_exceeded"), answer
    assert "deadline-7b" in answer["error"]["message"]


# ── too many requests upstream (item 14) ────────────────────────────────────────────────────────────────────

RETRY = {"odar.providers.http.ATTEMPTS": 3, "odar.providers.http.FIRST_PAUSE_S": 0.0}


async def test_a_429_of_a_named_model_is_passed_on(start, up):
    live = await start(constants=RETRY)
    up.behave(status(429, retry_after=0.1))
    code, headers, answer = await live.post(CHAT, body())
    assert (code, headers["retry-after"], answer["error"]["type"]) == (429, "1", "rate_limit_error")
    assert len(up.requests) == 1


async def test_a_long_retry_after_is_not_waited_for(start, up, slow):
    live = await start(constants=RETRY)
    for server in (up, slow):
        server.behave(status(429, retry_after=30))
    code, headers, _ = await live.post(CHAT, body("odar-simple"))
    assert (code, headers["retry-after"]) == (429, "30")
    assert (len(up.requests), len(slow.requests)) == (1, 1)


async def test_a_short_retry_after_is_waited_for(start, up):
    live = await start(constants=RETRY)
    up.enqueue(status(429, retry_after=0.1))
    assert await statuses(live, 1, model="odar-simple") == {200}
    assert len(up.requests) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_an_alternative_model_is_tried_before_waiting(start, up, slow, stream):
    live = await start(constants=RETRY, fast__alternatives=["deep"])
    up.behave(status(429, retry_after=0.1))
    slow.behave(ok("Answer: 4"))
    code, text = await live.text(CHAT, body("odar-simple", stream=stream))
    assert (code, "4" in text) == (200, True)
    assert (len(up.requests), len(slow.requests)) == (1, 1)


async def test_retries_are_limited_per_question(start, up, slow, monkeypatch):
    monkeypatch.setattr("odar.agents.ledger.MAX_RETRIES", 2)
    live = await start(constants=RETRY)
    for server in (up, slow):
        server.behave(status(500))
    assert await statuses(live, 1, model="odar-hard") == {500}
    assert len(up.requests) + len(slow.requests) == 2 + 2  # one call of each agent, and two retries


async def test_a_stream_error_has_its_type(start, up, slow):
    live = await start(constants=RETRY)
    for server in (up, slow):
        server.behave(status(429, retry_after=30))
    code, text = await live.text(CHAT, body("odar-medium", stream=True))
    error = json.loads(text.rsplit("data: ", 1)[-1])["error"] if code == 200 else json.loads(text)["error"]
    assert error["type"] == "rate_limit_error", text


async def test_the_limits_of_a_key_are_checked_before_a_body(start):
    live = await start(keys=[api_key("k", "secret", max_parallel=1)])
    headers = {"x-api-key": "secret"}
    go = asyncio.Event()

    async def endless():
        yield b"{"
        await go.wait()

    first = asyncio.create_task(live.http.post(live.url + CHAT, data=endless(), headers=headers))
    try:
        await until(lambda: live.service.concurrency_limit.in_flight == 1)
        async with live.http.post(live.url + CHAT, data=endless(), headers=headers) as response:
            assert response.status == 429
    finally:
        go.set()
    assert (await first).status == 400


# ── how much a request may hold (item 11) ───────────────────────────────────────────────────────────────────

PART = {"type": "text", "text": "a"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
SCHEMA = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(100)}}
FORM = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}


@pytest.mark.parametrize(
    ("more", "limit"),
    [
        ({"messages": turn() * 11}, "limit is 10"),
        ({"messages": [{"role": "user", "content": [PART] * 10}]}, "limit is 10"),
        ({"tools": [TOOL] * 4}, "limit is 3"),
        ({"tools": [{**TOOL, "x": "y" * 2000}]}, "limit is 1 kB"),
        ({"response_format": FORM}, "limit is 1 kB"),
        ({"user": "u", "x": [0] * 600}, "500 values"),
    ],
    ids=["messages", "parts", "tools", "tool", "schema", "values"],
)
async def test_the_parts_of_a_request_are_limited(start, up, more, limit, monkeypatch):
    for name, value in {"MAX_MESSAGES": 10, "MAX_TOOLS": 3, "MAX_SCHEMA_KB": 1, "MAX_VALUES": 500}.items():
        monkeypatch.setattr(f"odar.serving.protocols.json_body.{name}", value)
    live = await start()
    code, _, answer = await live.post(CHAT, body(**more))
    assert (code, limit in answer["error"]["message"]) == (400, True), answer
    assert up.requests == []
    fine = {"messages": turn() * 10, "tools": [TOOL] * 3, "response_format": {"type": "json_object"}}
    assert (await live.post(CHAT, body(**fine)))[0] == 200


async def test_punctuation_in_a_text_is_not_counted_as_values(start, monkeypatch):
    monkeypatch.setattr("odar.serving.protocols.json_body.MAX_VALUES", 100)
    live = await start()
    text = 'a, "b", {c}, [d], \\" e' * 500
    assert (await live.post(CHAT, body(messages=turn(text))))[0] == 200


async def test_a_large_request_is_read_in_another_thread(start, monkeypatch):
    import odar.serving.endpoint as module

    seen, check = [], module.check_parts

    def noting(*arguments):
        seen.append(threading.current_thread() is threading.main_thread())
        check(*arguments)

    monkeypatch.setattr(module, "check_parts", noting)
    live = await start()
    for length in (10, 200_000):
        assert (await live.post(CHAT, body(messages=turn("word " * (length // 5)))))[0] == 200
    assert seen == [True, False]


@pytest.mark.parametrize("model", ["odar", "odar-hard", "quick"])
async def test_long_texts_are_read_outside_the_event_loop(start, up, slow, model, monkeypatch):
    """Questions and answers of 200 kB: nothing that reads all of a text does so in the loop."""
    import odar.agents.ledger as ledger
    import odar.agents.team as team
    import odar.policy.similarity as similarity
    import odar.providers.http as http
    import odar.question as question
    import odar.serving.protocols.chat as chat
    import odar.serving.sessions as sessions

    in_loop = []

    def watch(module, name):
        function = getattr(module, name)

        def noting(*arguments, **options):
            if threading.current_thread() is threading.main_thread():
                in_loop.append(name)
            return function(*arguments, **options)

        monkeypatch.setattr(module, name, noting)

    for module, name in (
        (ledger, "_json_tokens"),
        (question, "own_words"),
        (sessions, "_digests"),
        (team, "find_answer"),
        (similarity, "_parse"),
        (chat.ChatWriter, "deltas"),
        (http, "dump_json"),
    ):
        watch(module, name)
    for server in (up, slow):
        server.behave(ok("A long answer. " * 15_000 + "\nAnswer: 4"))
    live = await start()
    for stream in (False, True):
        long = body(model, messages=turn("word " * 40_000), max_tokens=9, stream=stream)
        status_code, text = await live.text(CHAT, long)
        assert (status_code, "long" in text) == (200, True), text[:200]
    assert in_loop == []
    await live.post(CHAT, body("odar-hard"))
    assert set(in_loop) >= {"own_words", "dump_json"}, "short ones are read in the loop"


async def test_a_large_image_is_encoded_outside_the_event_loop(start, up, monkeypatch):
    import odar.providers.openai as module

    seen, encode = [], module.image_url

    def noting(image):
        seen.append(threading.current_thread() is threading.main_thread())
        return encode(image)

    monkeypatch.setattr(module, "image_url", noting)
    live = await start(models={"quick": {"provider": "f", "images": True}, "deep": {"provider": "s"}})
    data = base64.b64encode(PNG + b"\0" * 100_000).decode()
    source = {"type": "base64", "media_type": "image/png", "data": data}
    turns = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    status_code, _, answer = await live.post("/v1/messages", {"model": "quick", "max_tokens": 9, "messages": turns})
    assert status_code == 200, answer
    assert seen == [False]


async def test_an_endless_answer_is_refused(start, up, monkeypatch):
    monkeypatch.setattr("odar.agents.team.MAX_TEXT", 1000)
    live = await start()
    up.behave(ok("word " * 300))
    code, _, answer = await live.post(CHAT, body())
    assert (code, "endless" in answer["error"]["message"]) == (502, True), answer


# ── nothing waits in the event loop (item 12) ───────────────────────────────────────────────────────────────


async def test_slow_metrics_do_not_block_requests(start, monkeypatch):
    live = await start()
    waiting, go = threading.Event(), threading.Event()

    def report(self, steps):
        waiting.set()
        assert go.wait(20)
        return []

    monkeypatch.setattr(ServedAlignment, "report", report)
    scrape = asyncio.create_task(live.http.get(live.url + "/metrics"))
    assert await asyncio.to_thread(waiting.wait, 20)
    try:
        async with asyncio.timeout(60), live.http.get(live.url + "/healthz") as response:
            assert response.status == 200
        assert not scrape.done()
    finally:
        go.set()
    assert (await scrape).status == 200


async def test_the_file_of_served_energies_is_read_before_the_first_question(start, tmp_path, monkeypatch):
    threads = []
    load = ServedAlignment.load

    def noting(self):
        threads.append(threading.current_thread() is threading.main_thread())
        return load(self)

    monkeypatch.setattr(ServedAlignment, "load", noting)
    live = await start(app_options={"served": tmp_path / "served.json"})
    await until(lambda: live.service.odar.planner.estimator.loaded)
    assert await statuses(live, 2, model="odar-medium") == {200}
    assert threads == [False]
