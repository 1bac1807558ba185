"""Routes that call no model."""

from __future__ import annotations

import asyncio
import threading

from odar.serving.openapi import openapi_document
from odar.types import Estimate
from support.fault_server import answer
from support.gateway import turn
from support.live_gateway import api_key
from support.payloads import chat_payload

CHAT = "/v1/chat/completions"
BODY = {"model": "odar", "messages": turn()}


async def get(live, path, **options):
    async with live.http.get(live.url + path, **options) as response:
        return response.status, await response.json()


async def test_models_are_listed_for_both_sdks(live):
    status, listed = await get(live, "/v1/models")
    names = [model["id"] for model in listed["data"]]
    assert status == 200
    assert {"odar", "odar-simple", "odar-medium", "odar-hard", "quick", "deep"} <= set(names)
    assert (listed["object"], listed["has_more"]) == ("list", False)
    assert (listed["first_id"], listed["last_id"]) == (names[0], names[-1])
    for model in listed["data"]:
        assert (model["object"], model["type"], model["display_name"]) == ("model", "model", model["id"])
        assert await get(live, f"/v1/models/{model['id']}") == (200, model)


async def test_models_say_what_they_can_do_and_cost(start):
    live = await start(models__quick__context=8192, models__quick__price={"input": 1.0, "output": 2.0})
    listed = {model["id"]: model for model in (await get(live, "/v1/models"))[1]["data"]}
    quick, own = listed["quick"], listed["odar-economy"]
    assert (quick["context_length"], quick["agents"], quick["tools"]) == (8192, ["fast"], True)
    assert (quick["price"]["input"], quick["price"]["cached"], quick["price"]["output"]) == (1.0, 1.0, 2.0)
    assert (own["owned_by"], own["price"], own["agents"]) == ("odar", None, ["fast", "slow"])
    assert own["context_length"] is None  # that of the slow model is unknown
    for model in listed.values():
        assert model["input_modalities"][0] == "text" and isinstance(model["logprobs"], bool)


async def test_an_unknown_model_is_404(live):
    status, reply = await get(live, "/v1/models/meta-llama/Llama-4")
    assert (status, reply["error"]["code"], reply["error"]["param"]) == (404, "model_not_found", "model")
    assert "'meta-llama/Llama-4'" in reply["error"]["message"]
    assert "/v1/models lists them" in reply["error"]["message"]


async def test_a_model_without_its_key_names_the_key(live, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    for name in ("gpt-5.1", "openai/gpt-9"):
        status, _, reply = await live.post(CHAT, BODY | {"model": name})
        assert (status, reply["error"]["code"]) == (404, "model_not_found")
        assert "OPENAI_API_KEY is not set for `odar serve`" in reply["error"]["message"]
    assert "gpt-5.1" not in [model["id"] for model in (await get(live, "/v1/models"))[1]["data"]]


async def test_the_users_own_models_are_listed_and_served(start, up):
    up.behave(answer(chat_payload("Hello.")))
    live = await start(fast__model="f/qwen3:4b")
    assert "f/qwen3:4b" in [model["id"] for model in (await get(live, "/v1/models"))[1]["data"]]
    status, _, reply = await live.post(CHAT, BODY | {"model": "f/qwen3:4b"})
    assert (status, reply["choices"][0]["message"]["content"]) == (200, "Hello.")


async def test_feedback_is_stored(live):
    _, headers, _ = await live.post(CHAT, BODY)
    mark = {"trace_id": headers["x-odar-trace"], "correct": False, "note": "it is five"}
    assert (await live.post("/v1/feedback", mark))[0] == 200
    assert live.memory_store.marks == [(headers["x-odar-trace"], False, "it is five")]
    assert (await live.post("/v1/feedback", mark | {"trace_id": "nobody"}))[0] == 404


async def test_long_feedback_is_rejected(live):
    status, _, reply = await live.post("/v1/feedback", {"trace_id": "t", "correct": True, "note": "x" * 70_000})
    assert (status, reply["error"]["code"]) == (413, "request_too_large")


async def test_routes_that_need_a_key(start):
    live = await start(keys=[api_key("k1", "right")])
    for path in ("/v1/models", "/v1/models/quick"):
        assert (await get(live, path))[0] == 401
        assert (await get(live, path, headers={"x-api-key": "right"}))[0] == 200
    assert (await live.post("/v1/feedback", {"trace_id": "t", "correct": True}))[0] == 401
    assert await get(live, "/healthz") == (200, {"status": "ok"})
    assert (await get(live, "/openapi.json")) == (200, openapi_document())


async def test_readyz_is_503_until_models_are_loaded(start):
    """The gateway is alive at once, and ready when the first question would not wait."""
    loaded = threading.Event()

    class Slow:
        name = "slow"

        def estimate(self, query):
            assert loaded.wait(10)
            return Estimate(0.1, self.name)

    live = await start(app_options={"estimator": Slow()})

    async def status(path: str) -> tuple[int, str]:
        async with live.http.get(live.url + path) as response:
            return response.status, (await response.json())["status"]

    assert await status("/healthz") == (200, "ok")
    assert await status("/readyz") == (503, "loading")
    body = {"model": "odar", "messages": turn(), "odar": {"deadline_s": 0.1}}
    code, _, refused = await live.post("/v1/chat/completions", body)
    assert (code, refused["error"]["code"]) == (504, "deadline")
    loaded.set()
    async with asyncio.timeout(60):
        while (await status("/readyz"))[0] != 200:
            await asyncio.sleep(0.01)
    assert (await live.post("/v1/chat/completions", {"model": "odar", "messages": turn()}))[0] == 200
