"""The gateway with a store: keys of the store are accepted, and requests are recorded."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta

import pytest

from odar.config import load_settings
from odar.conversation import ChatParameters, Message, Tool
from odar.serving import endpoint
from odar.serving.keys import create_key
from odar.serving.store import Store
from odar.traces.database import Database
from odar.traces.filter import Filter
from odar.types import Query
from support.entries import entry
from support.fault_server import answer, hang, status
from support.payloads import chat_payload
from support.waiting import until

CHAT = "/v1/chat/completions"
BODY = {"model": "odar-simple", "messages": [{"role": "user", "content": "What is two and two?"}]}


@pytest.fixture
def settings(tmp_path, quick_flush):
    return load_settings("tiny", store__url=str(tmp_path / "store.db"))


@pytest.fixture
async def store(settings):
    store = Store(settings)
    yield store
    await store.close()


@pytest.fixture
async def recorded(start, store):
    return await start(store=store)


async def make_key(stores, settings, **limits) -> str:
    """Create a key as another process would; gateways notice it within two seconds."""
    database = Database(settings.store)
    _, secret = create_key(database, "tests", **limits)
    database.close()
    await until(lambda: all(store.key_cache.verify(secret) is not None for store in stores))
    return secret


async def test_a_request_becomes_a_trace_under_its_key(store, settings, recorded):
    secret = await make_key([store], settings)
    status_, headers, _ = await recorded.post(CHAT, BODY, headers={"authorization": f"Bearer {secret}"})
    assert status_ == 200
    await store.flush()
    page = store.archive.page(Filter())
    assert [trace["id"] for trace in page["traces"]] == [headers["x-odar-trace"]]
    assert page["traces"][0]["path"] == "simple"
    assert page["traces"][0]["key_id"]
    marked = {"trace_id": headers["x-odar-trace"], "correct": True}
    assert (await recorded.post("/v1/feedback", marked, headers={"x-api-key": secret}))[0] == 200


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_budget_holds_across_gateways_on_one_database(start, up, settings, request, kind):
    if kind == "postgres":
        url = request.getfixturevalue("postgres_url")
        settings = load_settings("tiny", store__url=url)
    up.behave(answer(chat_payload("Four.", usage={"prompt_tokens": 10, "completion_tokens": 5})))
    stores = [Store(settings) for _ in range(2)]
    try:
        gateways = [await start(store=store) for store in stores]
        secret = await make_key(stores, settings, budget_day_usd=2e-4)
        body, sign = {**BODY, "model": "quick", "max_tokens": 5}, {"x-api-key": secret}
        replies = await asyncio.gather(*(gateways[i % 2].post(CHAT, body, headers=sign) for i in range(30)))
        costs = [said["usage"]["cost"] for status_, _, said in replies if status_ == 200]
        assert {status_ for status_, _, _ in replies} == {200, 429}
        assert costs
        assert sum(costs) <= 2e-4
    finally:
        for store in stores:
            await store.close()


async def test_a_reply_ends_after_it_is_charged(start, settings, store, monkeypatch):
    monkeypatch.setattr(endpoint, "_CHARGE_TIMEOUT_S", 60.0)
    charged: Future[None] = Future()
    held = []
    monkeypatch.setattr(store.budgets, "charge", lambda *charge: held.append(charge) or charged)
    gateway = await start(store=store)
    secret = await make_key([store], settings, budget_day_usd=1.0)
    reply = asyncio.create_task(gateway.post(CHAT, BODY, headers={"x-api-key": secret}))
    await until(lambda: held)
    await asyncio.sleep(0.05)  # it could arrive now
    assert not reply.done()
    charged.set_result(None)
    assert (await reply)[0] == 200
    assert len(held) == 1, "charged once"


async def test_a_failure_is_recorded(store, settings, recorded, up, slow):
    secret = await make_key([store], settings)
    up.behave(status(503))
    slow.behave(status(503))
    assert (await recorded.post(CHAT, BODY, headers={"x-api-key": secret}))[0] == 503
    await store.flush()
    page = store.archive.page(Filter())
    assert page["traces"][0]["status"] == "error"


async def test_a_failed_request_has_its_start_time(live, up):
    up.behave(hang())
    body = {**BODY, "odar": {"deadline_s": 0.3}}
    assert (await live.post(CHAT, body))[0] == 504
    entry = await live.entry()
    ended = datetime.fromisoformat(entry.trace.started_at) + timedelta(seconds=entry.seconds)
    assert ended <= datetime.now(UTC)


async def test_a_key_made_by_another_process_is_accepted(store, settings, recorded):
    assert (await recorded.post(CHAT, BODY))[0] == 200  # no key yet: this machine may ask
    secret = await make_key([store], settings, models=("odar-simple",))
    assert (await recorded.post(CHAT, BODY))[0] == 401
    assert (await recorded.post(CHAT, BODY, headers={"x-api-key": secret}))[0] == 200
    other = dict(BODY, model="odar")
    assert (await recorded.post(CHAT, other, headers={"x-api-key": secret}))[0] == 403


async def test_a_key_over_its_rate_gets_retry_after(store, settings, recorded, up):
    secret = await make_key([store], settings, rate_per_min=1.0)
    assert (await recorded.post(CHAT, BODY, headers={"x-api-key": secret}))[0] == 200
    asked = len(up.requests)
    status_, headers, reply = await recorded.post(CHAT, BODY, headers={"x-api-key": secret})
    assert status_ == 429
    assert 1 <= int(headers["retry-after"]) <= 60
    assert "tests" in reply["error"]["message"]
    assert len(up.requests) == asked


async def test_a_key_with_an_empty_budget_makes_no_call(store, settings, recorded, up):
    secret = await make_key([store], settings, budget_day_usd=0.0)
    status_, _, reply = await recorded.post(CHAT, BODY, headers={"x-api-key": secret})
    assert status_ == 429
    assert "has spent $0.0000 of its $0 a day" in reply["error"]["message"]
    assert up.requests == []


async def test_a_key_with_a_budget_cannot_use_a_model_without_a_price(store, settings, recorded, up):
    secret = await make_key([store], settings, budget_day_usd=5.0)
    body = dict(BODY, model="f/unpriced")
    status_, _, reply = await recorded.post(CHAT, body, headers={"x-api-key": secret})
    assert (status_, reply["error"]["code"]) == (403, "price_unknown")
    assert up.requests == []


async def test_stages_beyond_the_budget_are_left_out(store, settings, recorded, up):
    """One fast call costs at most $0.0015, one slow call ten times as much."""
    secret = await make_key([store], settings, budget_day_usd=0.003)
    question = "What is " + "1 + " * 250 + "1?"
    body = {"model": "odar-quality", "messages": [{"role": "user", "content": question}]}
    status_, headers, reply = await recorded.post(CHAT, body, headers={"x-api-key": secret})
    assert (status_, headers["x-odar-path"]) == (200, "simple"), reply
    assert reply["odar"]["reason"] == "no further stage fits the limits"


async def test_a_keys_target_moves_its_dial_and_is_a_limit(store, settings, recorded):
    secret = await make_key([store], settings, target_calls=1.5)
    headers = {"authorization": f"Bearer {secret}"}
    body = BODY | {"model": "odar"}
    for dial in ({}, {"target_calls": 4.0}, {"target_calls": 1.2}, {"dial": "quality"}):
        await recorded.post(CHAT, body | {"odar": dial}, headers=headers)
    await store.flush()
    found = [trace["document"]["plan"]["dial"] for trace in store.archive.export()]
    assert sorted(found) == ["target 1.2 calls", *["target 1.5 calls"] * 3]
    key_id = store.key_cache.verify(secret).id
    assert {row.scope for row in recorded.service.odar.targets.report()} == {
        f"key {key_id}",
        f"request of key {key_id}",
    }
    text = recorded.service.metrics.text().decode()
    assert f'odar_target{{kind="calls",scope="key {key_id}"}} 1.5' in text
    assert f'odar_target_questions_total{{kind="calls",scope="key {key_id}"}} 3.0' in text
    assert "request of key" not in text


async def test_a_number_beyond_what_the_store_can_hold_fails_nobody(store, settings, recorded):
    secret = await make_key([store], settings, rate_per_min=100.0)
    body = {"model": "quick", "prompt": ["a"] * 64, "max_tokens": 2**53, "best_of": 128}
    status_, _, reply = await recorded.post("/v1/completions", body, headers={"x-api-key": secret})
    assert status_ != 503, reply  # in the transaction of other keys' reservations


@pytest.mark.parametrize("damage", ["deleted", "corrupted"])
async def test_a_store_that_is_lost_makes_the_gateway_unavailable(
    store, settings, recorded, tmp_path, caplog, damage
):
    secret = await make_key([store], settings)
    headers = {"authorization": f"Bearer {secret}"}
    assert (await recorded.post(CHAT, BODY, headers=headers))[0] == 200
    await until(lambda: recorded.service.odar.planner.estimator.loaded)
    for suffix in ("-wal", ""):
        file = tmp_path / f"store.db{suffix}"
        if damage == "deleted":
            file.unlink()
        else:
            file.write_bytes(b"no database " * 10_000)
    await until(lambda: store.key_cache.lost)
    status_, _, reply = await recorded.post(CHAT, BODY, headers=headers)
    assert (status_, reply["error"]["code"]) == (503, "store_unavailable")
    for path, expected in (("/readyz", 503), ("/healthz", 200)):
        async with recorded.http.get(recorded.url + path) as response:
            assert response.status == expected, path
    await asyncio.sleep(2.5)  # two more looks at the keys
    said = [
        record.message for record in caplog.records if "every request that needs a key is refused" in record.message
    ]
    assert len(said) == 1
    assert str(tmp_path) in said[0]


def test_a_record_holds_no_earlier_turns_and_no_tools():
    turns = (Message("user", "x" * 1000), Message("assistant", "y" * 1000), Message("user", "And now?"))
    query = Query.from_messages(turns, ChatParameters(max_tokens=9, tools=(Tool("f", "z" * 1000),)))
    kept = entry(query=query).without_conversation().query
    assert (kept.text, kept.turns, kept.parameters) == ("And now?", (), ChatParameters(max_tokens=9))
