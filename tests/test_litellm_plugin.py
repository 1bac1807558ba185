"""The plug-in for LiteLLM with a router of the same shape; `make qa-litellm` runs it in a real proxy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from odar.background import CURRENT_KEY
from odar.errors import ProviderProtocolError
from odar.litellm_plugin import _PARAMS, OdarLLM, RequestFailed, RouterProvider
from support.gateway import call_payload, turn
from support.requests import ask

MODEL = "nano>flash>large"
DEPLOYED = {"nano": "openai/gpt-4.1-nano", "flash": "gemini/gemini-3.5-flash-lite", "large": "openai/gpt-4.1"}
USAGE = {"prompt_tokens": 40, "completion_tokens": 10, "total_tokens": 50}


class Dumped(SimpleNamespace):
    """A response, or an event, of LiteLLM."""

    def model_dump(self) -> Any:
        return self.payload


class FakeRouter:
    """What the plug-in uses of `litellm.Router`."""

    def __init__(self, says: Any, **groups: Any) -> None:
        self.says = says
        self.requests: list[dict[str, Any]] = []
        self.groups = {"supported_openai_params": ["logprobs", "n"], "supports_vision": False} | groups

    def get_model_list(self, name: str | None = None) -> list[Any]:
        listed = {
            **DEPLOYED,
            "odar": f"odar/{MODEL}",
            "bad": "odar/nano",
            "gone": "odar/nano>missing",
            "loop": "odar/nano>odar",
        }
        chosen = {each: model for each, model in listed.items() if name in (None, each)}
        return [{"model_name": each, "litellm_params": {"model": model}} for each, model in chosen.items()]

    def get_model_group_info(self, name: str) -> Any:
        price = 2e-6 if name == "large" else 1e-7
        known = {"providers": [DEPLOYED.get(name, "odar/").partition("/")[0]], "max_input_tokens": 1_000_000.0}
        return SimpleNamespace(input_cost_per_token=price, output_cost_per_token=4 * price, **known, **self.groups)

    async def acompletion(self, **request: Any) -> Any:
        self.requests.append(request)
        request["metadata"]["model_group"] = request["model"]  # LiteLLM's router writes into it
        said = self.says(request["model"])
        if isinstance(said, Exception):
            raise said
        if isinstance(said, dict):
            return Dumped(payload=said)
        if request.get("stream"):
            return self._events(said)
        choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        return Dumped(payload={"model": request["model"], "choices": [choice], "usage": USAGE})

    async def _events(self, text: str) -> Any:
        for word in text.split(" "):
            yield Dumped(payload={"choices": [{"index": 0, "delta": {"content": f"{word} "}}]})
        yield Dumped(payload={"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": USAGE})


class Response(SimpleNamespace):
    """LiteLLM's `ModelResponse`."""

    def __init__(self, **payload: Any) -> None:
        super().__init__(_hidden_params={}, **payload)


def fields(question: str = "What is 17 * 23 + 4?", model: str = MODEL, **optional: Any) -> dict[str, Any]:
    metadata = {"user_api_key": "hash", "user_api_key_team_id": "t", "headers": {"x": "y"}, "model_group": "odar"}
    return {
        "model": model,
        "messages": turn(question),
        "optional_params": {"stream": False, "max_retries": 0, **optional},
        "litellm_params": {"metadata": metadata, "litellm_trace_id": "trace"},
        "model_response": Response(),
        "timeout": 30.0,
    }


def answers(**by_model: Any) -> Any:
    return lambda model: by_model[model]


def plugin(router: FakeRouter) -> OdarLLM:
    return OdarLLM(router)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)  # without an odar.toml


async def test_cheap_models_that_agree_need_no_large_one() -> None:
    router = FakeRouter(answers(nano="Answer: 395", flash="Answer: 395"))
    reply = await plugin(router).acompletion(**fields())
    assert [request["model"] for request in router.requests] == ["nano", "flash"]
    assert reply.choices[0]["message"]["content"] == "Answer: 395"
    assert reply.usage["total_tokens"] == 100
    assert reply.odar["stages"] == ["fast", "second"]
    assert reply.odar["cost_usd"] == pytest.approx(2 * (40 * 1e-7 + 10 * 4e-7))
    assert reply._hidden_params["response_cost"] == 0, "every call has been charged already"


async def test_every_call_has_its_own_copy_of_who_calls() -> None:
    router = FakeRouter(answers(nano="Answer: 395", flash="Answer: 395"))
    given = fields()
    await plugin(router).acompletion(**given)
    assert given["litellm_params"]["metadata"]["model_group"] == "odar"
    expected = {"user_api_key": "hash", "user_api_key_team_id": "t"}
    assert [request["metadata"] for request in router.requests] == [
        {**expected, "model_group": model} for model in ("nano", "flash")
    ]
    assert {request["litellm_trace_id"] for request in router.requests} == {"trace"}
    assert all(request["drop_params"] and request["timeout"] <= 30 for request in router.requests)


async def test_each_key_has_targets_and_statistics_of_its_own() -> None:
    router = FakeRouter(answers(nano="Answer: 395", flash="Answer: 395"))
    llm = plugin(router)
    seen = []
    says = router.says
    router.says = lambda model: seen.append(CURRENT_KEY.get()) or says(model)
    for key in ("a", "b"):
        given = fields(odar={"target_calls": 1.5})
        given["litellm_params"]["metadata"]["user_api_key_hash"] = key
        await llm.acompletion(**given)
    rows = (await llm._engine(MODEL)).targets.report()
    assert [row.scope for row in rows] == ["request of key a", "request of key b"]
    assert set(seen) == {"a", "b"}
    assert CURRENT_KEY.get() == ""


async def test_disagreement_asks_the_large_model() -> None:
    router = FakeRouter(answers(nano="Answer: 381", flash="Answer: 395", large="Answer: 395"))
    reply = await plugin(router).acompletion(**fields())
    assert [request["model"] for request in router.requests] == ["nano", "flash", "large"]
    assert reply.odar["agent"] == "slow"


async def test_a_client_can_set_limits_but_not_the_agents() -> None:
    router = FakeRouter(answers(nano="Answer: 381", flash="Answer: 395", large="Answer: 395"))
    reply = await plugin(router).acompletion(**fields(odar={"max_calls": 1}, fast="large", api_base="http://x"))
    (request,) = router.requests
    assert (request["model"], reply.odar["calls"], "api_base" in request) == ("nano", 1, False)


async def test_one_call_is_streamed_while_it_is_generated() -> None:
    router = FakeRouter(lambda model: "Green buds, and rain.")
    chunks = [chunk async for chunk in plugin(router).astreaming(**fields("Write a poem about spring."))]
    assert [chunk["text"] for chunk in chunks] == ["Green ", "buds, ", "and ", "rain. ", ""]
    last = chunks[-1]
    assert (last["is_finished"], last["finish_reason"]) == (True, "stop")
    assert last["usage"]["total_tokens"] == 50
    assert "cost" not in last["usage"], "LiteLLM would charge it again"
    assert last["provider_specific_fields"]["odar"]["calls"] == 1


async def test_a_cascade_is_streamed_when_it_has_decided() -> None:
    router = FakeRouter(answers(nano="Answer: 395", flash="Answer: 395"))
    chunks = [chunk async for chunk in plugin(router).astreaming(**fields())]
    assert "".join(chunk["text"] for chunk in chunks) == "Answer: 395"
    assert not any(request.get("stream") for request in router.requests)


async def test_tool_calls_are_returned_whole_and_as_chunks() -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    router = FakeRouter(lambda model: call_payload('{"city": "Paris"}'))
    reply = await plugin(router).acompletion(**fields("What is the weather in Paris?", tools=[tool]))
    assert reply.choices[0]["message"]["tool_calls"][0]["function"]["name"] == "weather"
    assert router.requests[0]["tools"] == [tool]


async def test_a_model_that_is_down_is_left_out() -> None:
    class Down(Exception):
        status_code = 503

    router = FakeRouter(answers(nano=Down("out of order"), flash="Answer: 395", large="Answer: 395"))
    reply = await plugin(router).acompletion(**fields())
    assert reply.odar["degraded"]
    assert reply.odar["cost_usd"] is not None, "a refused call is not billed"
    router.says = answers(nano=Down("a"), flash=Down("b"), large=Down("c"))
    with pytest.raises(RequestFailed, match="no agent produced an answer") as caught:
        await plugin(router).acompletion(**fields())
    assert caught.value.status_code == 503
    with pytest.raises(RequestFailed):
        [chunk async for chunk in plugin(router).astreaming(**fields())]


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (fields(odar={"dial": "cheap"}), 400),
        (fields(odar={"dail": 3}), 400),
        (fields(model="nano>flash"), 503),
        (fields(model="nano"), 503),
        (fields(model="nano>missing"), 503),
        (fields(model="nano>odar"), 503),
    ],
)
async def test_errors_have_a_status(given: Any, status: int, caplog: Any) -> None:
    router = FakeRouter(lambda model: "Answer: 395")
    with pytest.raises(RequestFailed) as caught:
        await plugin(router).acompletion(**given)
    assert caught.value.status_code == status
    assert not router.requests
    if status == 503:  # the client gets a reference, the log of the proxy the reason
        assert "model" in caplog.text


async def test_agents_of_other_settings_are_refused(tmp_path: Any, caplog: Any) -> None:
    (tmp_path / "odar.toml").write_text('[agents.third]\nmodel = "gpt-5.1"\n')
    router = FakeRouter(answers(nano="Answer: 395", flash="Answer: 395"))
    with pytest.raises(RequestFailed):
        await plugin(router).acompletion(**fields())
    assert "third of ODAR's settings has no place in 'odar/nano>flash>large'" in caplog.text
    assert not router.requests


async def test_cards_come_from_litellm() -> None:
    router = FakeRouter(answers(nano="Answer: 395", flash="Answer: 395"))
    llm = plugin(router)
    await llm.acompletion(**fields())
    (odar,) = llm._engines.values()
    cards = {agent: each[0] for agent, each in odar.agents.cards.items()}
    assert {agent: card.name for agent, card in cards.items()} == {
        "fast": "nano",
        "second": "flash",
        "slow": "large",
    }
    assert {agent: card.model_family for agent, card in cards.items()} == {
        "fast": "gpt",
        "second": "gemini",
        "slow": "gpt",
    }
    assert cards["slow"].price is not None
    assert cards["slow"].price.output == pytest.approx(8.0)
    assert (cards["fast"].context, cards["fast"].logprobs, cards["fast"].images) == (1_000_000, True, False)


async def test_a_response_that_cannot_be_read_is_not_a_timeout() -> None:
    token = _PARAMS.set({})
    try:
        with pytest.raises(ProviderProtocolError):
            await RouterProvider(FakeRouter(lambda model: {"choices": 7})).complete(ask())
    finally:
        _PARAMS.reset(token)
