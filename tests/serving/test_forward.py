"""/v1/embeddings and /v1/completions through the OpenAI SDK: one named model, with the same limits as questions."""

from __future__ import annotations

import openai
import pytest

from odar.config import load_settings
from odar.serving.keys import create_key
from odar.serving.store import Store
from odar.traces.database import Database
from odar.traces.filter import Filter
from support.fault_server import Exchange, status
from support.waiting import until

EMBEDDED = {
    "object": "list",
    "model": "quick-1",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.25, -0.5]}],
    "usage": {"prompt_tokens": 1_000_000, "total_tokens": 1_000_000},
}
COMPLETED = {
    "id": "cmpl-1",
    "object": "text_completion",
    "created": 1,
    "model": "quick-1",
    "choices": [{"index": 0, "text": " four", "finish_reason": "stop", "logprobs": None}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
}


async def serve(exchange: Exchange) -> None:
    await exchange.send_json(EMBEDDED if exchange.path.endswith("/embeddings") else COMPLETED)


@pytest.fixture
def upstream(up):
    up.behave(serve)
    return up


async def test_embeddings_use_the_named_model_and_are_counted(live, upstream):
    reply = await live.openai.embeddings.create(
        model="quick", input=["a", "b"], dimensions=2, encoding_format="float", extra_body={"service_tier": "flex"}
    )
    assert reply.data[0].embedding == [0.25, -0.5]
    assert reply.usage.cost == pytest.approx(1.0)
    assert reply.odar["notes"] == ["fields of the request were not sent on: service_tier"]
    assert not reply.odar["degraded"]
    (sent,) = upstream.requests
    assert sent.path == "/v1/embeddings"
    assert sent.json == {"model": "quick", "input": ["a", "b"], "dimensions": 2, "encoding_format": "float"}
    entry = await live.entry()
    assert (entry.endpoint, entry.http_status, entry.trace.spend.cost_usd) == (
        "embeddings",
        200,
        pytest.approx(1.0),
    )
    assert 'odar_requests_total{endpoint="embeddings"' in (await live.service.metrics.render()).decode()


async def test_completions_have_a_length_and_can_be_streamed(live, upstream):
    reply = await live.openai.completions.create(model="quick", prompt="2 + 2 =", n=2, stop=["\n"], logprobs=1)
    assert reply.choices[0].text == " four"
    assert upstream.requests[0].json == {
        "model": "quick", "prompt": "2 + 2 =", "n": 2, "stop": ["\n"], "logprobs": 1, "max_tokens": 16,
    }  # fmt: skip
    stream = await live.openai.completions.create(model="quick", prompt=[1, 2, 3], stream=True)
    assert [chunk.choices[0].text async for chunk in stream] == [" four"]
    assert "stream" not in upstream.requests[1].json


@pytest.mark.parametrize("model", ["odar", "odar-hard"])
async def test_a_routed_model_name_is_rejected(live, upstream, model):
    with pytest.raises(openai.BadRequestError, match="name of one model"):
        await live.openai.embeddings.create(model=model, input="a")
    assert not upstream.requests


async def test_an_unconfigured_provider_is_not_reached(live):
    with pytest.raises(openai.NotFoundError):
        await live.openai.embeddings.create(model="openai/text-embedding-3-small", input="a")


async def test_a_provider_of_another_kind_is_named(start):
    live = await start(slow_kind="anthropic")
    with pytest.raises(openai.BadRequestError, match="of kind anthropic"):
        await live.openai.completions.create(model="deep", prompt="a")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("embeddings", {"input": []}),
        ("embeddings", {"input": [1, "a"]}),
        ("embeddings", {"input": {"text": "a"}}),
        ("embeddings", {"input": [[True]]}),
        ("embeddings", {"input": ["a"] * 2049}),
        ("completions", {}),
        ("completions", {"prompt": "a", "n": 4, "best_of": 2}),
        ("completions", {"prompt": "a", "n": 129}),
        ("completions", {"prompt": "a", "max_tokens": -1}),
        ("completions", {"prompt": "a", "odar": {"path": "hard"}}),
    ],
)
async def test_invalid_fields_are_rejected(live, upstream, path, body):
    assert (await live.post(f"/v1/{path}", {"model": "quick", **body}))[0] == 400
    assert not upstream.requests


async def test_request_limits_are_enforced(live, upstream):
    many = {"model": "quick", "prompt": ["a", "b"], "odar": {"max_calls": 1}}
    dear = {"model": "quick", "prompt": "a", "max_tokens": 1_000_000, "odar": {"max_cost_usd": 0.5}}
    for body in (many, dear):
        assert (await live.post("/v1/completions", body))[0] == 422
    assert not upstream.requests


async def test_an_upstream_error_is_passed_on(live, up):
    up.behave(status(404))
    with pytest.raises(openai.NotFoundError):
        await live.openai.embeddings.create(model="quick", input="a")


class TestKeys:
    @pytest.fixture
    async def store(self, tmp_path, quick_flush):
        self.settings = load_settings("tiny", store__url=str(tmp_path / "store.db"))
        store = Store(self.settings)
        yield store
        await store.close()

    async def client(self, start, store, **limits):
        options = {"models": {"quick": {"provider": "f", "price": {"input": 1, "output": 2}},
                              "deep": {"provider": "s"}, "free": {"provider": "f"}}}  # fmt: skip
        live = await start(store=store, **options)
        database = Database(self.settings.store)
        _, secret = create_key(database, "tests", **limits)
        database.close()
        await until(lambda: store.key_cache.verify(secret) is not None)
        return live.openai.with_options(api_key=secret)

    async def test_a_budget_is_reserved_and_settled(self, start, store, upstream):
        client = await self.client(start, store, budget_day_usd=1.5)
        await client.embeddings.create(model="quick", input="a")
        await store.flush()
        (trace,) = store.archive.page(Filter())["traces"]
        assert (trace["status"], trace["path"], trace["cost_usd"]) == ("ok", "direct", pytest.approx(1.0))
        with pytest.raises(openai.RateLimitError, match="has spent"):
            await client.completions.create(model="quick", prompt="a", max_tokens=300_000)
        assert len(upstream.requests) == 1

    async def test_an_unknown_price_is_rejected_under_a_budget(self, start, store, upstream):
        client = await self.client(start, store, budget_day_usd=1.5)
        with pytest.raises(openai.PermissionDeniedError, match="price"):
            await client.embeddings.create(model="free", input="a")
        assert not upstream.requests

    async def test_scopes_are_enforced(self, start, store, upstream):
        client = await self.client(start, store, models=("deep",))
        with pytest.raises(openai.PermissionDeniedError, match="may not use model"):
            await client.embeddings.create(model="quick", input="a")

    async def test_rate_limit_headers_are_sent(self, start, store, upstream):
        client = await self.client(start, store, rate_per_min=2, tokens_per_min=50_000_000)
        raw = await client.embeddings.with_raw_response.create(model="quick", input="abc")
        told = {name: value for name, value in raw.headers.items() if name.startswith("x-ratelimit-")}
        assert told["x-ratelimit-limit-requests"] == "2"
        assert told["x-ratelimit-remaining-requests"] == "1"
        assert told["x-ratelimit-limit-tokens"] == "50000000"
        assert 0 < int(told["x-ratelimit-remaining-tokens"]) < 50_000_000
        assert told["x-ratelimit-reset-requests"].endswith("s")
        with pytest.raises(openai.RateLimitError) as refused:
            for _ in range(3):
                await client.embeddings.create(model="quick", input="abc")
        assert refused.value.response.headers["x-ratelimit-remaining-requests"] == "0"
        assert int(refused.value.response.headers["retry-after"]) >= 1
