"""Any request to the three endpoints gets an answer or a client error, never a 500."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from fuzz.strategies import examples, json_values, mutated, texts
from hypothesis import given
from hypothesis import strategies as st

from odar.config import load_settings
from odar.serving.app import create_app
from odar.serving.errors import ApiError
from odar.serving.protocols.json_body import read_json
from support.live_gateway import MemoryStore
from support.scripted import ScriptedProvider, completion

TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CHATS = (
    {"model": "odar", "messages": [{"role": "user", "content": "2 + 2?"}]},
    {
        "model": "odar-hard",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,Li4u"}}]},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "4"},
        ],
        "tools": [TOOL], "tool_choice": "auto", "n": 2, "temperature": 0.5, "stop": ["x"], "logprobs": True, "top_logprobs": 2,
    },
    {
        "model": "m", "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 5, "seed": 3,
        "messages": [{"role": "user", "content": "2 + 2?"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
        "odar": {"max_calls": 2, "deadline_s": 5, "explain": True},
    },
)  # fmt: skip
MESSAGES = (
    {"model": "odar", "max_tokens": 9, "messages": [{"role": "user", "content": "2 + 2?"}]},
    {
        "model": "odar-medium", "max_tokens": 9, "stream": True, "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Look."}, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "Li4u"}}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "4"}]},
        ],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}], "tool_choice": {"type": "auto"},
        "thinking": {"type": "disabled"}, "stop_sequences": ["x"], "top_k": 3, "metadata": {"user_id": "u"},
    },
)  # fmt: skip
RESPONSES = (
    {"model": "odar", "input": "2 + 2?"},
    {
        "model": "odar-simple", "stream": True, "instructions": "Be brief.", "max_output_tokens": 9,
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look."}, {"type": "input_image", "image_url": "data:image/png;base64,Li4u"}]},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "4"},
        ],
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}], "text": {"format": {"type": "text"}},
    },
)  # fmt: skip
ENDPOINTS = {"/v1/chat/completions": CHATS, "/v1/messages": MESSAGES, "/v1/responses": RESPONSES}
EXPECTED = {200, 400, 403, 404, 413, 422, 429, 504}


@pytest.fixture(scope="module")
def app():
    provider = ScriptedProvider(lambda request, index: [completion("Answer: 4")] * request.n, "p")
    given_ = load_settings(
        "tiny",
        config="/dev/null",
        environ={},
        routing__estimator="length",
        providers={"p": {"kind": "openai", "base_url": "http://127.0.0.1:9/v1"}},
        models={
            "m": {"provider": "p", "logprobs": True, "n": True, "images": True, "price": {"input": 1, "output": 2}}
        },
        fast__model="m",
        slow__model="m",
    )
    return create_app(given_, store=MemoryStore(), providers={"p": provider})


def post(app: Any, path: str, body: bytes) -> tuple[int, bytes]:
    """Return status and body of one request, without a server."""
    sent: list[Any] = []
    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "root_path": "", "query_string": b"",
        "headers": [(b"host", b"127.0.0.1:1"), (b"content-type", b"application/json")], "http_version": "1.1", "scheme": "http",
        "client": ("127.0.0.1", 1),
    }  # fmt: skip

    async def exchange() -> None:
        waiting = [{"type": "http.request", "body": body}]

        async def receive() -> Any:
            if waiting:
                return waiting.pop()
            return await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        async with asyncio.timeout(60):
            await app(scope, receive, send)

    asyncio.run(exchange())
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def check(app: Any, path: str, body: bytes) -> int:
    status, answer = post(app, path, body)
    assert status in EXPECTED, (status, answer[:300], body[:300])
    if status != 200:
        error = json.loads(answer)["error"]
        assert error["message"], answer
        assert "\n" not in error["message"]
    else:
        assert b"internal error" not in answer, answer
    return status


@pytest.mark.parametrize("path", ENDPOINTS)
def test_the_unmutated_requests_are_valid(app, path):
    for body in ENDPOINTS[path]:
        assert check(app, path, json.dumps(body).encode()) == 200


@pytest.mark.parametrize("path", ENDPOINTS)
@examples(60)
@given(data=st.data())
def test_mutated_requests_are_answered_or_client_errors(app, path, data):
    check(app, path, json.dumps(data.draw(mutated(*ENDPOINTS[path]))).encode())


@pytest.mark.parametrize("path", [*ENDPOINTS, "/v1/feedback"])
@examples(25)
@given(
    body=json_values
    | st.dictionaries(st.sampled_from(["model", "messages", "input", "max_tokens", "odar"]), json_values)
)
def test_any_json_is_a_client_error(app, path, body):
    assert check(app, path, json.dumps(body).encode()) != 200


@pytest.mark.parametrize("path", [*ENDPOINTS, "/v1/feedback"])
@examples(25)
@given(body=st.binary(max_size=100))
def test_any_bytes_are_a_client_error(app, path, body):
    assert check(app, path, body) in (400, 422)


@examples(100)
@given(st.binary(max_size=60) | texts.map(lambda text: json.dumps({text: text}).encode()))
def test_bodies_are_json_or_rejected(body):
    try:
        value = read_json(body)
    except ApiError as refusal:
        assert refusal.status == 400
    else:
        json.dumps(value, ensure_ascii=False).encode()
