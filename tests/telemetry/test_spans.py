"""The spans of a query: structure, attributes, and no texts."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry import trace as otel
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.trace import SpanKind, StatusCode

from odar.config import load_settings
from odar.difficulty.base import ConstantEstimator
from odar.engine import Odar
from odar.errors import AllAgentsFailed, InputError, ProviderError, ProviderTimeout
from odar.options import AskOptions
from odar.providers.breaker import Breaker
from odar.types import Usage
from support.scripted import USAGE, ScriptedProvider, completion, step_of
from support.spans import SpanBook
from support.waiting import until

SECRET = "xyzzy-plugh-4711"
MODELS = {
    "quick": {"provider": "fast", "logprobs": True, "n": True, "price": {"input": 1, "output": 4}},
    "deep": {"provider": "slow", "logprobs": True, "price": {"input": 3, "output": 15}},
}


def talk(request, index):
    match step_of(request):
        case "answer":
            return [completion(f"It is {SECRET}.\nAnswer: 4", -0.5)]
        case "verify":
            return [completion("Judgment: CORRECT\nAnswer: 4", -0.2)]
        case _:
            return [completion("Hm.\nAnswer: 4", -0.3)] * request.n


def engine(book, fast=talk, slow=talk, difficulty=0.9, guard=None, **overrides):
    settings = load_settings(
        "tiny",
        environ={},
        **{
            "models": MODELS,
            "providers": {
                "fast": {"kind": "openai", "base_url": "https://api.openai.com/v1"},
                "slow": {"kind": "openai", "base_url": "http://gpu:8001/v1"},
            },
            "prompts": "paper",
            "policy": "paper",
            "fast__model": "quick",
            "slow__model": "deep",
        }
        | overrides,
    )
    providers = {"fast": ScriptedProvider(fast, "fast"), "slow": ScriptedProvider(slow, "slow")}
    return Odar(
        settings,
        providers=providers,
        estimator=ConstantEstimator(difficulty),
        observer=book.observer(settings),
        guard=guard,
    )


@pytest.fixture
def book():
    return SpanBook()


async def test_spans_of_the_hard_path(book):
    await engine(book).aask("2 + 2?")
    assert book.tree() == {
        "invoke_workflow odar": {
            "difficulty": {},
            "decision ×2": {},
            "invoke_agent fast": {"chat quick": {}},
            "invoke_agent slow": {"chat deep ×5": {}},
            "fusion": {},
        }
    }
    root = book.one("invoke_workflow odar")
    assert root.parent is None
    assert len({span.context.trace_id for span in book.all()}) == 1
    for chat in book.named("chat deep"):
        assert root.start_time <= chat.start_time <= chat.end_time <= root.end_time


async def test_spans_of_the_medium_path(book):
    await engine(book, difficulty=0.5).aask("2 + 2?")
    assert [span.attributes.get("odar.stage") for span in book.named("decision")] == ["fast", "slow:verify", None]
    assert book.one("invoke_agent slow").attributes["odar.step"] == "verify"


async def test_concurrent_queries_have_separate_spans(book):
    odar = engine(book)
    await asyncio.gather(*(odar.aask("2 + 2?") for _ in range(5)))
    assert len({span.context.trace_id for span in book.all()}) == 5
    assert book.tree()["invoke_workflow odar ×5"]["invoke_agent slow"] == {"chat deep ×5": {}}


async def test_attributes_of_the_root_span(book):
    answer = await engine(book).aask("2 + 2?", AskOptions(trace_id="t1"))
    said = book.one("invoke_workflow odar").attributes
    assert said["gen_ai.operation.name"] == "invoke_workflow"
    assert said["gen_ai.workflow.name"] == "odar"
    assert (said["odar.trace_id"], said["odar.path"], said["odar.calls"]) == ("t1", "hard", 6)
    assert (said["odar.difficulty"], said["odar.stages"]) == (0.9, ("fast+slow*5",))
    assert said["odar.cost_usd"] == pytest.approx(answer.trace.spend.cost_usd)


async def test_attributes_of_a_call(book):
    await engine(book).aask("2 + 2?", seed=7)
    said = dict(book.one("chat quick").attributes)
    assert said == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "fast",
        "gen_ai.request.model": "quick",
        "gen_ai.request.temperature": 0.2,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.max_tokens": 64,
        "gen_ai.request.seed": 7,
        "gen_ai.response.model": "quick",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": USAGE.input,
        "gen_ai.usage.cache_read.input_tokens": USAGE.cached,
        "gen_ai.usage.output_tokens": USAGE.output,
        "gen_ai.usage.reasoning.output_tokens": USAGE.reasoning,
        "server.address": "api.openai.com",
        "server.port": 443,
    }
    deep = book.named("chat deep")[0].attributes
    assert (deep["gen_ai.provider.name"], deep["server.port"]) == ("slow", 8001)
    assert all(span.kind is SpanKind.CLIENT for span in book.named("chat deep"))
    assert book.one("fusion").kind is SpanKind.INTERNAL


async def test_unknown_tokens_and_prices_are_omitted(book):
    odar = engine(book, models={**MODELS, "quick": {"provider": "fast"}}, difficulty=0.1)
    odar.agents.providers["fast"].usage = Usage()
    await odar.aask("2 + 2?")
    assert not [name for name in book.one("chat quick").attributes if "usage" in name]
    assert "odar.cost_usd" not in book.one("invoke_workflow odar").attributes


async def test_attributes_of_fusion(book):
    answer = await engine(book).aask("2 + 2?")
    said = book.one("fusion").attributes
    assert (said["odar.winner"], said["odar.rule"]) == (answer.trace.verdict.winner, answer.trace.verdict.rule)
    assert said["odar.weights"] == answer.trace.verdict.weights


async def test_a_decision_of_the_cascade_has_its_numbers(book):
    await engine(book, policy="cascade", difficulty=0.1).aask("2 + 2?")
    first, *_, last = book.named("decision")
    assert first.attributes["odar.price_usd"] > 0
    assert 0 < last.attributes["odar.p"] < 1
    assert "odar.stage" not in last.attributes


async def test_gen_ai_names_are_in_the_semantic_conventions(book):
    """Every `gen_ai.*` attribute is in the list of the SDK."""
    known = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    await engine(book, store__content=True).aask("2 + 2?", seed=7)
    used = {name for span in book.all() for name in span.attributes if name.startswith("gen_ai.")}
    assert used
    assert used <= known


async def test_spans_contain_no_text(book):
    await engine(book, store__content=True).aask(f"What is {SECRET} plus 2?")
    assert SECRET not in book.everything()


async def test_a_failure_has_a_type_and_no_message(book):
    def refuse(request, index):
        return ProviderError(f"bad key {SECRET}", provider="slow", status=429)

    answer = await engine(book, slow=refuse).aask("2 + 2?")
    assert answer.degraded
    for span in book.named("chat deep"):
        assert span.attributes["error.type"] == "429"
        assert span.status.status_code is StatusCode.ERROR
    assert book.one("invoke_workflow odar").attributes["odar.degraded"] is True
    assert book.one("invoke_workflow odar").status.status_code is StatusCode.UNSET
    assert SECRET not in book.everything()


async def test_a_failed_query_has_an_error_type(book):
    down = ProviderTimeout(f"no answer to {SECRET}", provider="p")
    with pytest.raises(AllAgentsFailed):
        await engine(book, fast=lambda *_: down, slow=lambda *_: down).aask("2 + 2?")
    assert book.one("invoke_workflow odar").attributes["error.type"] == "AllAgentsFailed"
    assert book.one("chat quick").attributes["error.type"] == "ProviderTimeout"
    with pytest.raises(InputError):
        await engine(book).aask(" ")
    assert book.named("invoke_workflow odar")[-1].attributes["error.type"] == "InputError"
    assert SECRET not in book.everything()


async def test_a_call_rejected_by_the_breaker_has_a_span(book):
    breaker = Breaker(failures=1, cooldown_s=60)
    breaker.failed()
    odar = engine(book, guard=lambda _: breaker.call)
    with pytest.raises(AllAgentsFailed):
        await odar.aask("2 + 2?")
    assert book.one("chat quick").attributes["error.type"] == "503"


async def test_a_cancelled_query_is_not_an_error(book):
    odar = engine(book)
    slow = odar.agents.providers["slow"]
    slow.delay_s = 300
    task = asyncio.create_task(odar.aask("2 + 2?"))
    await until(lambda: slow.in_flight)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    root = book.one("invoke_workflow odar")
    assert root.attributes["odar.cancelled"] is True
    assert root.status.status_code is StatusCode.UNSET


def test_the_span_of_a_synchronous_caller_is_the_parent(book):
    odar = engine(book)
    with book._provider.get_tracer("app").start_as_current_span("app") as outer:
        odar.ask("2 + 2?")
    assert book.one("invoke_workflow odar").parent.span_id == outer.get_span_context().span_id
    assert otel.get_current_span() is otel.INVALID_SPAN
    odar.close()
