"""Fallback models, and the agent that accepts images."""

from __future__ import annotations

from typing import Any

import pytest

from odar.catalogue import ModelCard
from odar.config import load_settings
from odar.errors import ProviderError, ProviderUnreachable
from odar.policy.experts import Expert, route_model
from support.scripted import ScriptedProvider, completion

CHAT = "/v1/chat/completions"
PICTURE = "data:image/png;base64,iVBORw0KGgo="
PRICE = {"input": 1, "output": 2}
MODELS: dict[str, Any] = {
    "quick": {"provider": "f", "logprobs": True, "price": PRICE, "images": True},
    "deep": {"provider": "s", "logprobs": True, "price": PRICE, "images": True},
    "spare": {"provider": "b", "logprobs": True, "price": {"input": 5, "output": 10}, "images": True},
}


def says(text: str, name: str) -> ScriptedProvider:
    return ScriptedProvider(lambda request, index: [completion(text)] * request.n, name)


def fails(error: ProviderError) -> ScriptedProvider:
    return ScriptedProvider(lambda request, index: error, "s")


async def ask(
    start: Any, slow: ScriptedProvider, body: dict[str, Any], **settings: Any
) -> tuple[Any, dict[str, Any]]:
    pair = {"f": says("Paris", "f"), "s": slow, "b": says("Rome", "b")}
    providers = {name: {"kind": "openai", "base_url": "http://127.0.0.1:9"} for name in pair}
    chosen = {"models": MODELS, "slow__model": ["deep", "spare"], "providers": providers} | settings
    live = await start(app_options={"providers": pair}, **chosen)
    status, _, reply = await live.post(CHAT, body)
    assert status == 200, reply
    return pair, reply


@pytest.mark.parametrize(
    "error",
    [
        ProviderError("too many", status=429, may_be_billed=False),
        ProviderError("broken", status=503, may_be_billed=False),
        ProviderError("too long", status=400, code="context_length_exceeded", may_be_billed=False),
        ProviderUnreachable("left alone", status=503, code="circuit_open", reached=False, may_be_billed=False),
    ],
)
async def test_the_next_model_of_the_role_answers(start, error):
    body = {"model": "odar-medium", "messages": [{"role": "user", "content": "Capital of Italy?"}]}
    pair, reply = await ask(start, fails(error), body)
    assert reply["odar"]["model"] in ("spare", "quick")
    assert len(pair["b"].requests) == 1
    assert reply["odar"]["degraded"]
    assert reply["usage"]["cost"] == reply["odar"]["cost_usd"]


async def test_a_rejected_question_is_not_sent_to_a_fallback(start):
    body = {"model": "odar-medium", "messages": [{"role": "user", "content": "Capital of Italy?"}]}
    pair, _ = await ask(start, fails(ProviderError("bad request", status=400)), body)
    assert not pair["b"].requests


@pytest.mark.parametrize(("blind", "answer"), [("quick", "Rome"), ("deep", "Paris")])
async def test_the_only_agent_that_accepts_images_answers_alone(start, blind, answer):
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": PICTURE}}]
    models = {**MODELS, blind: {**MODELS[blind], "images": False}}
    body = {"model": "odar", "messages": [{"role": "user", "content": parts}]}
    pair, reply = await ask(start, says("Rome", "s"), body, models=models, slow__model="deep")
    assert reply["choices"][0]["message"]["content"] == answer
    assert not pair["f" if blind == "quick" else "s"].requests
    assert any("cannot see images" in note for note in reply["odar"]["degradations"])


def test_a_list_of_models_sets_the_fallbacks() -> None:
    settings = load_settings(
        "tiny", environ={}, fast__model=["smollm2-135m", "qwen2.5-coder-0.5b"], slow__model="smollm2-135m"
    )
    assert (settings.fast.model, settings.fast.fallbacks) == ("smollm2-135m", ("qwen2.5-coder-0.5b",))


def test_a_model_with_too_short_a_context_is_skipped() -> None:
    small = ModelCard("small", "p", "small", context=1000, scores={"math": 0.5})
    large = ModelCard("large", "p", "large", context=9000, scores={"math": 0.9})
    chosen = [
        route_model([small, large], Expert.MATH, images=False, tokens=tokens, fallbacks=["large"]).name
        for tokens in (10, 5000, 50_000)
    ]
    assert chosen == ["small", "large", "small"]
