"""POST /v1/decision: no call, nothing stored, and the checks and limits of every other endpoint."""

from __future__ import annotations

from typing import Any

import pytest

from support.gateway import turn
from support.live_gateway import api_key

URL = "/v1/decision"
CHAT = "/v1/chat/completions"
QUESTION = "What is 17 * 23 + 4?"
BODY = {"model": "odar", "messages": turn(QUESTION)}


@pytest.fixture
async def cascade(start: Any) -> Any:
    async def go(**settings: Any) -> Any:
        return await start(policy="cascade", **settings)

    return go


def says(agent: str, answer: int) -> dict[str, Any]:
    return {"agent": agent, "text": f"Answer: {answer}"}


async def test_a_caller_that_makes_the_calls_itself(cascade: Any, up: Any, slow: Any) -> None:
    live = await cascade()
    answers: list[dict[str, Any]] = []
    while True:
        status, _, step = await live.post(URL, BODY | {"answers": answers})
        assert status == 200, step
        if step["action"] == "stop":
            break
        for ask in step["ask"]:
            assert ask["request"]["model"] in ("quick", "deep")
            answers += [says(ask["agent"], 395)] * ask["samples"]
    assert answers
    assert step["answer"]["final"] == "395"
    assert step["p"] > 0.5
    assert not up.requests
    assert not slow.requests
    assert not live.memory_store.records, "a decision is not a trace"
    assert {entry.endpoint for entry in live.memory_store.entries} == {"decision"}


async def test_the_dial_headers_and_limits_of_a_request_count(cascade: Any) -> None:
    live = await cascade()
    _, _, step = await live.post(URL, BODY | {"model": "odar-quality"})
    assert step["dial"] == "quality"
    _, _, step = await live.post(URL, BODY, headers={"x-odar-dial": "40"})
    assert step["dial"] == "40 points"
    _, _, step = await live.post(URL, BODY | {"odar": {"max_calls": 1}, "answers": [says("fast", 395)]})
    assert (step["action"], step["reason"]) == ("stop", "no further stage fits the limits")
    _, _, step = await live.post(URL, BODY | {"model": "odar-hard"})
    assert (step["stage"], len(step["ask"])) == ("fast+slow*5", 2)
    _, _, step = await live.post(URL, BODY | {"model": "deep"})
    assert [(each["agent"], each["model"]) for each in step["ask"]] == [("direct", "deep")]


async def test_tools_are_part_of_the_request(cascade: Any) -> None:
    live = await cascade()
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    body = BODY | {"tools": [tool]}
    _, _, step = await live.post(URL, body)
    assert step["ask"][0]["request"]["tools"] == [tool]
    assert step["reason"].endswith("one call")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"model": "odar"}, "messages"),
        ([], "body"),
        (BODY | {"answers": {}}, "answers"),
        (BODY | {"answers": [{"text": "4"}]}, "answers[0].agent"),
        (BODY | {"answers": [says("fats", 4)]}, "answers[0].agent"),
        (BODY | {"answers": [says("fast", 4) | {"logprobs": [{"token": "4", "logprob": "x"}]}]}, None),
        (BODY | {"answers": [says("fast", 4)] * 33}, "answers"),
    ],
)
async def test_errors_name_the_field(cascade: Any, body: Any, param: str | None) -> None:
    status, _, reply = await (await cascade()).post(URL, body)
    assert (status, reply["error"]["param"]) == (400, param or "answers[0].logprobs[0].logprob")


async def test_keys_scopes_rates_and_sizes(start: Any) -> None:
    keys = [
        api_key("any", "any"),
        api_key("one", "one", models=("deep",)),
        api_key("cheap", "cheap", max_path="simple"),
        api_key("rare", "rare", rate_per_min=1.0),
    ]
    live = await start(keys=keys, policy="cascade", gateway__max_body_mb=0.01)

    async def status(secret: str, body: Any = BODY) -> tuple[int, Any]:
        found, _, reply = await live.post(URL, body, headers={"authorization": f"Bearer {secret}"})
        return found, reply

    assert (await live.post(URL, BODY))[0] == 401
    assert (await status("any"))[0] == 200
    refused, reply = await status("one")
    assert (refused, reply["error"]["code"]) == (403, "model_not_allowed")
    assert (await status("one", BODY | {"model": "deep"}))[0] == 200
    differ = BODY | {"answers": [says("fast", 381)], "odar": {"dial": "quality"}}
    assert (await status("any", differ))[1]["stage"].startswith("slow")
    assert (await status("cheap", differ))[1]["action"] == "stop"
    assert [(await status("rare"))[0] for _ in range(2)] == [200, 429]
    assert (await status("any", BODY | {"user": "x" * 20_000}))[0] == 413


async def test_openapi_describes_it(live: Any) -> None:
    async with live.http.get(live.url + "/openapi.json") as response:
        post = (await response.json())["paths"][URL]["post"]
    assert "answers" in post["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert list(post["responses"]["200"]["content"]) == ["application/json"]


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("path", ["/v1/batches", "/v1/files", "/v1/files/file-1/content", "/v1/messages/batches"])
async def test_files_and_batches_say_what_to_do_instead(start: Any, method: str, path: str) -> None:
    live = await start(keys=[api_key("k", "sk-test")])
    async with live.http.request(method, live.url + path) as response:
        assert response.status == 401
    headers = {"authorization": "Bearer sk-test"}
    async with live.http.request(method, live.url + path, headers=headers) as response:
        error = (await response.json())["error"]
    assert response.status == 501
    assert "odar batch requests.jsonl answers.jsonl" in error["message"]


@pytest.mark.parametrize(
    ("fields", "param", "hint"),
    [
        ({"background": True}, "background", "leave it out"),
        ({"prompt": {"id": "p"}}, "prompt", "instructions"),
        ({"conversation": "c"}, "conversation", "whole conversation"),
        ({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "tool_choice", "a function"),
    ],
)
async def test_what_only_openai_has_is_rejected_with_a_hint(live: Any, fields: Any, param: str, hint: str) -> None:
    status, _, reply = await live.post("/v1/responses", {"model": "odar", "input": "Hi"} | fields)
    assert (status, reply["error"]["param"]) == (400, param)
    assert hint in reply["error"]["message"]
