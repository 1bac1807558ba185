"""The metrics of calls to models."""

from __future__ import annotations

import pytest
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

from odar.config import load_settings
from odar.difficulty.base import ConstantEstimator
from odar.engine import Odar
from odar.errors import ProviderError
from support.scripted import USAGE, ScriptedProvider, completion
from support.spans import SpanBook

TOKENS = gen_ai_metrics.GEN_AI_CLIENT_TOKEN_USAGE
DURATION = gen_ai_metrics.GEN_AI_CLIENT_OPERATION_DURATION
FIRST_CHUNK = gen_ai_metrics.GEN_AI_CLIENT_OPERATION_TIME_TO_FIRST_CHUNK
SECRET = "xyzzy-plugh-4711"


def engine(book, script=lambda request, index: [completion("Answer: 4")], **overrides):
    settings = load_settings(
        "tiny",
        environ={},
        models={"m": {"provider": "p"}},
        providers={"p": {"kind": "openai", "base_url": "https://api.openai.com/v1"}},
        fast__model="m",
        slow__model="m",
        policy="fast",
        **overrides,
    )
    return Odar(
        settings,
        providers={"p": ScriptedProvider(script, "p")},
        estimator=ConstantEstimator(0.1),
        observer=book.observer(settings),
    )


@pytest.fixture
def book():
    return SpanBook()


async def test_tokens_and_durations_of_calls(book):
    odar = engine(book)
    for _ in range(3):
        await odar.aask("2 + 2?")
    by_type = {point.attributes["gen_ai.token.type"]: point for point in book.metric(TOKENS)}
    assert {kind: (point.count, point.sum) for kind, point in by_type.items()} == {
        "input": (3, 3 * USAGE.input),
        "output": (3, 3 * USAGE.output),
    }
    (took,) = book.metric(DURATION)
    assert (took.count, took.explicit_bounds[0], took.explicit_bounds[-1]) == (3, 0.01, 81.92)
    assert dict(took.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "p",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "m",
        "server.address": "api.openai.com",
        "server.port": 443,
    }
    assert book.metric(FIRST_CHUNK) == []  # nothing was streamed


async def test_the_first_chunk_of_a_stream_is_timed(book):
    odar = engine(book)
    seen = []
    await odar.aask("2 + 2?", on_text=seen.append)
    assert seen
    (point,) = book.metric(FIRST_CHUNK)
    (took,) = book.metric(DURATION)
    assert point.count == 1 and 0 <= point.sum <= took.sum
    assert book.one("chat m").attributes["gen_ai.response.time_to_first_chunk"] == point.sum


async def test_a_failed_call_has_an_error_type(book):
    odar = engine(book, lambda request, index: ProviderError(f"no {SECRET}", provider="p", status=429))
    with pytest.raises(ProviderError):
        await odar.aask("2 + 2?")
    assert {point.attributes["error.type"] for point in book.metric(DURATION)} == {"429"}
    assert book.metric(TOKENS) == []


async def test_content_is_on_spans_only_if_it_is_switched_on(book):
    await engine(book).aask(f"Is it {SECRET}?")
    assert SECRET not in book.everything()
    await engine(book, lambda *_: [completion(f"{SECRET}!")], telemetry__content=True).aask(f"Is it {SECRET}?")
    said = book.named("chat m")[-1].attributes
    assert SECRET in said["gen_ai.input.messages"] and SECRET in said["gen_ai.output.messages"]
    assert not any(SECRET in str(point.attributes) for point in book.metric(DURATION))
