"""The exception that each SDK raises for each failure, on every protocol."""

from __future__ import annotations

import anthropic
import openai
import pytest

from support.fault_server import answer, status
from support.live_gateway import api_key
from support.payloads import chat_payload

TURN = [{"role": "user", "content": "Hi"}]
OPENAI = {
    400: openai.BadRequestError,
    401: openai.AuthenticationError,
    404: openai.NotFoundError,
    413: openai.APIStatusError,
    422: openai.UnprocessableEntityError,
    429: openai.RateLimitError,
    502: openai.InternalServerError,
    504: openai.InternalServerError,
}
ANTHROPIC = {
    400: anthropic.BadRequestError,
    401: anthropic.AuthenticationError,
    404: anthropic.NotFoundError,
    413: anthropic.RequestTooLargeError,
    422: anthropic.UnprocessableEntityError,
    429: anthropic.RateLimitError,
    502: anthropic.InternalServerError,
    504: anthropic.DeadlineExceededError,
}


def chat(live, **fields):
    return live.openai.chat.completions.create(**{"model": "odar-simple", "messages": TURN} | fields)


def responses(live, **fields):
    fields |= {"input": fields.pop("messages")[0]["content"]} if "messages" in fields else {}
    return live.openai.responses.create(**{"model": "odar-simple", "input": "Hi"} | fields)


def messages(live, **fields):
    return live.anthropic.messages.create(**{"model": "odar-simple", "max_tokens": 9, "messages": TURN} | fields)


PROTOCOLS = pytest.mark.parametrize(
    ("ask", "kinds"),
    [(chat, OPENAI), (responses, OPENAI), (messages, ANTHROPIC)],
    ids=lambda each: getattr(each, "__name__", ""),
)


@PROTOCOLS
@pytest.mark.parametrize("code", OPENAI)
async def test_each_status_raises_the_sdk_exception(start, up, slow, ask, kinds, code):
    options, fields = {}, {}
    match code:
        case 400:
            fields = {"tool_choice": "sometimes"}
        case 401:
            options = {"keys": [api_key("k", "another")]}
        case 404:
            fields = {"model": "no-such-model"}
        case 413:
            options, fields = (
                {"gateway__max_body_mb": 0.001},
                {"messages": [{"role": "user", "content": "x" * 2000}]},
            )
        case 422:
            fields = {"model": "quick", "extra_body": {"odar": {"max_cost_usd": 1e-12}}}
        case 429:
            up.behave(status(429, retry_after=7, body={"error": {"message": "slow down"}}))
            fields = {"model": "quick"}
        case 502:
            up.behave(answer({"nonsense": True}))
            fields = {"model": "quick"}
        case 504:
            up.behave(status(504, body={"error": {"message": "too late"}}))
            fields = {"model": "quick"}
    if code in (400, 401, 404, 413, 422):
        up.behave(answer(chat_payload("Hi")))
    live = await start(**options)
    with pytest.raises(kinds[code]) as caught:
        await ask(live, **fields)
    error = caught.value
    assert error.status_code == code
    assert error.response.headers.get("x-request-id")
    if code == 429:
        assert error.response.headers["retry-after"] == "7"
    body = error.response.json()
    assert body["error"]["message"]
    assert (body.get("type") == "error") is (ask is messages)
