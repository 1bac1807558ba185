"""Limits of requests: size, nesting, images."""

from __future__ import annotations

import base64
import io
import json

import pytest

from odar.inputs import MAX_BYTES
from support.gateway import PNG, turn

CHAT = "/v1/chat/completions"
PATHS = (CHAT, "/v1/messages", "/v1/responses", "/v1/feedback")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("depth", [65, 500, 990, 1_000, 9_000])
async def test_deep_nesting_is_a_client_error(live, path, opening, depth):
    closing = {"[": "]"}.get(opening, "}")
    for body in (opening * depth + "1" + closing * depth, opening * depth):
        async with live.http.post(live.url + path, data=body) as response:
            answer = await response.json()
            assert response.status == 400, answer
            assert "nested" in answer["error"]["message"] or "not valid JSON" in answer["error"]["message"]


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.parametrize("depth", [150, 250, 990, 30_000])
async def test_deep_json_in_a_string_is_accepted(start, up, slow, kind, depth):
    """Arguments are JSON inside a string, so the limit on the depth of the body does not apply."""
    live = await start(slow_kind=kind)
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "[" * depth + "]" * depth}}
    turns = [*turn(), {"role": "assistant", "content": None, "tool_calls": [call]}]
    turns.append({"role": "tool", "tool_call_id": "c", "content": "ok"})
    for model in ("deep", "odar"):
        status, _, body = await live.post(CHAT, {"model": model, "messages": turns})
        assert status in (200, 502), body


def picture(size: int) -> str:
    return "data:image/png;base64," + base64.b64encode(PNG + b"\0" * (size - len(PNG))).decode()


BODIES = {
    CHAT: lambda url: {
        "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
    },
    "/v1/messages": lambda url: {
        "max_tokens": 9,
        "messages": [
            {
                "role": "user",
                "content": [
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": url.partition(",")[2]},
                    }
                ],
            }
        ],
    },
    "/v1/responses": lambda url: {
        "input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]
    },
}


@pytest.mark.parametrize("path", BODIES)
async def test_a_large_image_is_rejected(live, up, path):
    large = json.dumps({"model": "quick", **BODIES[path](picture(MAX_BYTES + 1))}).encode()
    async with live.http.post(live.url + path, data=io.BytesIO(large)) as response:
        status, body = response.status, await response.json()
    assert status == 413, body
    assert "20 MB" in body["error"]["message"]
    assert up.requests == []
    status, _, body = await live.post(path, {"model": "quick", **BODIES[path](picture(1000))})
    assert status == 200, body


@pytest.mark.parametrize("path", PATHS)
async def test_a_large_body_is_rejected_whole_or_chunked(start, path):
    live = await start(gateway__max_body_mb=0.1)

    async def pieces():
        for _ in range(200):
            yield b'{"a": "' + b"x" * 1000

    for data in (b" " * 100_001, pieces()):
        async with live.http.post(live.url + path, data=data) as response:
            assert response.status == 413


@pytest.mark.parametrize("path", PATHS)
async def test_long_numbers_are_client_errors(live, path):
    for number in ("9" * 4000, "9" * 5000, "1e999", "-1e999", "NaN", "Infinity"):
        async with live.http.post(
            live.url + path, data=f'{{"model": "quick", "max_tokens": {number}}}'
        ) as response:
            assert response.status == 400, await response.text()


async def test_python_attribute_names_are_plain_fields(live, up):
    body = {"model": "quick", "messages": turn(), "__class__": {"__init__": 1}, "constructor": {"prototype": 1}}
    status, _, reply = await live.post(CHAT, json.loads(json.dumps(body)))
    assert status == 200
    assert not {"__class__", "constructor"} & set(up.requests[0].json)  # dropped, like any field that is not listed
    assert reply["odar"]["notes"] == ["f: fields of the request were not sent on: 2 unknown"]
