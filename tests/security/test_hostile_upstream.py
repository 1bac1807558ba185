"""A hostile or broken model server: the client gets an answer or an error, and the gateway keeps working."""

from __future__ import annotations

import json

import pytest

from support.fault_server import answer, events, ok
from support.gateway import call_payload, turn
from support.payloads import chat_events, chat_payload

CHAT = "/v1/chat/completions"
DEPTHS = (150, 199, 250, 900, 990, 1_100, 30_000)


def nested(depth: int, inside: str = "1") -> str:
    return "[" * depth + inside + "]" * depth


def raw(text: str, status: int = 200):
    return lambda exchange: exchange.send(text.encode(), status)


def hidden_in(payload: dict, depth: int) -> str:
    """Return the payload with an additional field of this depth."""
    return json.dumps(payload)[:-1] + f', "novelty": {nested(depth)}}}'


def in_a_choice(depth: int) -> str:
    text = json.dumps(chat_payload("Answer: 4"))
    return text.replace('"finish_reason"', f'"novelty": {nested(depth)}, "finish_reason"', 1)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(
    "make", [lambda d: hidden_in(chat_payload("Answer: 4"), d), in_a_choice, lambda d: nested(d)],
    ids=["reply", "choice", "alone"],
)  # fmt: skip
async def test_a_deeply_nested_reply_is_read_or_rejected(start, up, make, depth):
    live = await start(constants={"odar.providers.breaker.FAILURES": 1000})
    up.behave(raw(make(depth)))
    for model in ("quick", "odar-simple"):
        status, _, body = await live.post(CHAT, {"model": model, "messages": turn()})
        assert status in (200, 502), body
        if status != 200:
            assert body["error"]["code"] == "upstream_failed"
    up.behave(ok("Answer: 4"))
    assert (await live.post(CHAT, {"model": "quick", "messages": turn()}))[0] == 200


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("where", ["status", "in a 200", "stream"])
async def test_a_deeply_nested_error_is_passed_on_or_summarised(start, up, where, depth):
    live = await start(constants={"odar.providers.breaker.FAILURES": 1000})
    error = f'{{"error": {{"message": "no", "detail": {nested(depth)}}}}}'
    if where == "stream":
        up.behave(events([*chat_events("a b c")[:2], error]))
        status, text = await live.text(CHAT, {"model": "quick", "messages": turn(), "stream": True})
        assert (status, "internal_error" in text) == (200, False)
        assert '"error"' in text
        return
    up.behave(raw(error, 418 if where == "status" else 200))
    status, _, body = await live.post(CHAT, {"model": "quick", "messages": turn()})
    assert status in (418, 502), body
    assert body["error"]["code"] != "internal_error"


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses"])
async def test_deeply_nested_arguments_reach_the_client_unchanged(start, up, path, depth):
    live = await start(constants={"odar.providers.breaker.FAILURES": 1000})
    arguments = '{"city": ' + nested(depth) + "}"
    up.behave(answer(call_payload(arguments)))
    schema = {"type": "object", "properties": {"city": {}}}
    tools = {
        CHAT: {"type": "function", "function": {"name": "weather", "parameters": schema}},
        "/v1/messages": {"name": "weather", "input_schema": schema},
        "/v1/responses": {"type": "function", "name": "weather", "parameters": schema},
    }
    asked = {"input": "hi"} if path.endswith("responses") else {"messages": turn()}
    status, _, body = await live.post(path, {"model": "quick", "max_tokens": 99, "tools": [tools[path]], **asked})
    assert status == 200, body
    assert "[[[[" in json.dumps(body)


@pytest.mark.parametrize("depth", DEPTHS)
async def test_an_answer_of_deep_json_is_treated_as_text(live, up, slow, depth):
    for server in (up, slow):
        server.behave(ok(nested(depth)))
    body = {"messages": turn(), "response_format": {"type": "json_object"}}
    for model in ("odar-simple", "odar-hard"):
        status, _, answered = await live.post(CHAT, {"model": model, **body})
        assert status == 200, answered


@pytest.mark.parametrize(
    "text",
    [
        '{"choices": [{"message": {"content": "x"}, "logprobs": {"content": [{"token": "a", "logprob": 1e999}]}}]}',
        '{"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": -1e999, "completion_tokens": NaN}}',
        '{"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": ' + "9" * 4000 + "}}",
        '{"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": ' + "9" * 5000 + "}}",
        '{"choices": [{"message": {"content": "\\ud800"}, "finish_reason": "\\udfff"}]}',
        '{"choices": [{"message": {"content": "x", "role": "system"}, "index": 7}], "model": ["a"]}',
        '{"choices": [{"message": {"content": "\\u0000\\u001b[2J<script>alert(1)</script>"}}]}',
        '{"choices": [{"message": {"content": "a"}, "logprobs": {"content": '
        '[{"token": "a", "logprob": -1, "bytes": 99999999999}]}}]}',
        '{"choices": {"0": {}}}',
        '{"error": true}',
        "null",
        "",
    ],
)
async def test_invalid_replies_are_not_internal_errors(start, up, text):
    live = await start(constants={"odar.providers.breaker.FAILURES": 1000})
    up.behave(raw(text))
    for model in ("quick", "odar-simple", "odar-medium"):
        status, _, body = await live.post(CHAT, {"model": model, "messages": turn()})
        assert status in (200, 502), body
        json.dumps(body, allow_nan=False)


@pytest.mark.parametrize("code", [300, 301, 302, 303, 304, 305, 307, 308])
async def test_redirects_are_not_followed(live, up, slow, code):
    good = chat_payload("Answer: 4")  # and what it says besides is not taken for an answer
    up.behave(lambda exchange: exchange.send_json(good, code, location=slow.url + "/chat/completions"))
    status, _, body = await live.post(CHAT, {"model": "quick", "messages": turn()})
    assert status == 502
    assert "redirects are not followed" in body["error"]["message"]
    assert slow.requests == []


async def test_cookies_of_an_upstream_are_not_kept(live, up):
    up.behave(lambda exchange: exchange.send_json(chat_payload("Answer: 4"), set_cookie="session=1; Path=/"))
    for _ in range(2):
        await live.post(CHAT, {"model": "quick", "messages": turn()})
    assert "cookie" not in up.requests[1].headers
