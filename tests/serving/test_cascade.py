"""Fast, second and slow agents behind the gateway: agreement, disagreement, the dial, what a budget leaves out."""

from __future__ import annotations

from typing import Any

import pytest

from odar.traces.record import to_document
from odar.traces.story import tell_story
from support.gateway import turn
from support.scripted import ScriptedProvider, completion

CHAT = "/v1/chat/completions"
QUESTION = "What is 17 * 23 + 4?"
MODELS = {
    "quick": {"provider": "f", "family": "a", "price": {"input": 0.1, "output": 0.4}},
    "other": {"provider": "o", "family": "b", "price": {"input": 0.1, "output": 0.4}},
    "deep": {"provider": "s", "family": "c", "price": {"input": 3, "output": 15}},
}


def says(name: str, answer: str) -> ScriptedProvider:
    return ScriptedProvider(lambda request, index: [completion(f"Answer: {answer}")] * request.n, name)


@pytest.fixture
async def trio(start: Any) -> Any:
    async def go(fast: str, second: str, slow: str = "395", **settings: Any) -> Any:
        providers = {"f": says("f", fast), "o": says("o", second), "s": says("s", slow)}
        base = {"kind": "openai", "base_url": "http://127.0.0.1:9/v1"}
        return await start(
            app_options={"providers": providers},
            models=MODELS,
            providers=dict.fromkeys(providers, base),
            second__model="other",
            policy="cascade",
            **settings,
        )

    return go


async def asked(live: Any, model: str = "odar", **odar: Any) -> dict[str, Any]:
    status, _, reply = await live.post(CHAT, {"model": model, "messages": turn(QUESTION), "odar": odar})
    assert status == 200, reply
    return reply["odar"]


async def test_agreement_of_two_cheap_agents_needs_no_slow_call(trio: Any) -> None:
    told = await asked(await trio("395", "395"))
    assert (told["stages"], told["path"]) == (["fast", "second"], "simple")
    assert told["p"] > 0.7


async def test_disagreement_asks_the_slow_agent(trio: Any) -> None:
    live = await trio("381", "395")
    told = await asked(live)
    assert told["stages"][:3] == ["fast", "second", "slow"]
    (record,) = live.memory_store.records
    story = dict(tell_story(to_document(record, content=True)))
    assert story["second"].startswith("395 · they differ · ")
    assert "2 of 3 agree" in story["slow"]
    assert "stop: " in list(story.values())[-2]


async def test_the_dial_is_a_model_a_field_or_a_header(trio: Any) -> None:
    live = await trio("381", "395")
    assert (await asked(live, "odar-economy"))["dial"] == "economy"
    assert (await asked(live, "odar-quality"))["dial"] == "quality"
    assert (await asked(live, dial=40))["dial"] == "40 points"
    assert (await asked(live, value_usd=0.5))["dial"] == "$0.5"
    body = {"model": "odar", "messages": turn(QUESTION)}
    _, _, reply = await live.post(CHAT, body, headers={"x-odar-dial": "economy"})
    assert reply["odar"]["dial"] == "economy"
    _, _, reply = await live.post(CHAT, body | {"odar": {"dial": 4}}, headers={"x-odar-value-usd": "1"})
    assert reply["odar"]["dial"] == "4 points", "the body replaces every form in the headers"


async def test_a_better_dial_makes_more_calls(trio: Any) -> None:
    live = await trio("381", "395", "393")
    cheap = await asked(live, dial=100)
    good = await asked(live, dial=0.1)
    assert cheap["calls"] < good["calls"]
    assert cheap["cost_usd"] < good["cost_usd"]


async def test_stages_that_do_not_fit_the_request_are_left_out(trio: Any) -> None:
    live = await trio("381", "395")
    told = await asked(live, "odar-quality", max_cost_usd=0.001)
    assert told["stages"] == ["fast", "second"]
    assert told["reason"] == "no further stage fits the limits"
    assert not told["degraded"]
    told = await asked(live, "odar-quality", max_calls=1)
    assert told["calls"] == 1


async def test_explain_returns_the_document_of_the_trace(trio: Any) -> None:
    live = await trio("395", "395")
    told = await asked(live, explain=True)
    document = told["explanation"]
    assert [decision["stage"] for decision in document["decisions"]] == ["fast", "second", None]
    assert document["baseline_usd"] == pytest.approx((10 * 3 + 5 * 15) / 1e6)
    assert document["plan"]["assignment"]["models"] == {"fast": "quick", "second": "other", "slow": "deep"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("model", "dial"), [("odar-economy", "economy"), ("odar", "balanced"), ("odar-quality", "quality")]
)
async def test_both_sdks_turn_the_dial_by_the_models_name(trio: Any, model: str, dial: str, stream: bool) -> None:
    live = await trio("381", "395")
    turns: Any = turn(QUESTION)
    if stream:
        chunks = [
            each
            async for each in await live.openai.chat.completions.create(model=model, messages=turns, stream=True)
        ]
        said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        async with live.anthropic.messages.stream(model=model, max_tokens=200, messages=turns) as events:
            message = await events.get_final_message()
    else:
        reply = await live.openai.chat.completions.create(model=model, messages=turns)
        said = reply.choices[0].message.content or ""
        message = await live.anthropic.messages.create(model=model, max_tokens=200, messages=turns)
    assert said.endswith("Answer: 395") and message.content[-1].text.endswith("Answer: 395")
    dials = [record.trace.plan.dial for record in live.memory_store.records]
    assert dials == [dial, dial]
