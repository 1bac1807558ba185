"""`previous_response_id` on /v1/responses: opt-in, for the key that asked, within limits and retention."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import openai
import pytest
from sqlalchemy import delete, func, select, update

from odar.config import load_settings
from odar.serving.keys import create_key
from odar.serving.store import Store
from odar.traces.database import Database, responses
from odar.traces.retention import delete_old_traces
from support.fault_server import ok
from support.waiting import until

MODEL = "odar-simple"


@pytest.fixture
def settings(tmp_path, quick_flush):
    return load_settings("tiny", store__url=str(tmp_path / "store.db"))


@pytest.fixture
async def store(settings):
    store = Store(settings)
    yield store
    await store.close()


@pytest.fixture
async def kept(start, store):
    return await start(store=store, store__responses=True)


async def key(store, settings, name):
    database = Database(settings.store)
    _, secret = create_key(database, name)
    database.close()
    await until(lambda: store.key_cache.verify(secret) is not None)
    return secret


def turns(exchange):
    return [(turn["role"], turn["content"]) for turn in exchange.json["messages"] if turn["role"] != "system"]


async def test_a_conversation_is_continued_by_id(kept, up):
    up.behave(ok("Paris"))
    first = await kept.openai.responses.create(model=MODEL, input="Capital of France?", instructions="Be brief.")
    up.behave(ok("Two million"))
    second = await kept.openai.responses.create(model=MODEL, input="How large?", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    stream = await kept.openai.responses.create(
        model=MODEL, input=[{"role": "user", "content": "Sure?"}], previous_response_id=second.id, stream=True
    )
    (third,) = [event.response async for event in stream if event.type == "response.completed"]
    assert turns(up.requests[-1]) == [
        ("user", "Capital of France?"),
        ("assistant", "Paris"),
        ("user", "How large?"),
        ("assistant", "Two million"),
        ("user", "Sure?"),
    ]
    assert "Be brief." not in json.dumps(up.requests[-1].json)
    await kept.openai.responses.create(model=MODEL, input="And now?", previous_response_id=third.id)
    assert len(turns(up.requests[-1])) == 7


async def test_without_the_setting_a_400_names_it(live, up):
    with pytest.raises(openai.BadRequestError, match=r"store\.responses = true") as caught:
        await live.openai.responses.create(model=MODEL, input="Go on", previous_response_id="resp_1")
    assert caught.value.param == "previous_response_id"
    assert not up.requests


async def test_store_false_keeps_nothing(kept):
    first = await kept.openai.responses.create(model=MODEL, input="Hello", store=False)
    with pytest.raises(openai.BadRequestError, match="unknown"):
        await kept.openai.responses.create(model=MODEL, input="Go on", previous_response_id=first.id)


async def test_another_key_cannot_read_a_stored_response(kept, store, settings):
    one, other = await key(store, settings, "one"), await key(store, settings, "other")
    client = kept.openai
    first = await client.with_options(api_key=one).responses.create(model=MODEL, input="Hello")
    continued = {"model": MODEL, "input": "Go on", "previous_response_id": first.id}
    with pytest.raises(openai.BadRequestError, match="unknown") as foreign:
        await client.with_options(api_key=other).responses.create(**continued)
    with pytest.raises(openai.BadRequestError) as missing:
        await client.with_options(api_key=other).responses.create(**continued | {"previous_response_id": "resp_0"})
    assert foreign.value.message == missing.value.message
    await client.with_options(api_key=one).responses.create(**continued)


@pytest.mark.parametrize("previous", [5, ["resp_1"], {"id": "x"}])
async def test_an_id_must_be_a_string(kept, previous):
    body = {"model": MODEL, "input": "Go on", "previous_response_id": previous}
    assert (await kept.post("/v1/responses", body))[0] == 400


async def test_the_body_limit_applies_to_the_whole_conversation(start, store):
    live = await start(
        store=store,
        store__responses=True,
        gateway__max_body_mb=0.002,
    )
    first = await live.openai.responses.create(model=MODEL, input="x" * 1500)
    with pytest.raises(openai.BadRequestError, match="max_body_mb"):
        await live.openai.responses.create(model=MODEL, input="y" * 1000, previous_response_id=first.id)


async def test_retention_deletes_stored_responses(kept, store, settings):
    first = await kept.openai.responses.create(model=MODEL, input="Hello")
    database = Database(settings.store)
    delete_old_traces(database, 30, datetime.now(UTC) + timedelta(days=10))
    assert store.responses.items(first.id, "") is not None
    delete_old_traces(database, 30, datetime.now(UTC) + timedelta(days=32))
    database.close()
    assert store.responses.items(first.id, "") is None


async def test_a_continuation_stores_only_what_is_new(kept, store, settings):
    first = await kept.openai.responses.create(model=MODEL, input="word " * 20_000)
    last = first
    for _ in range(8):
        last = await kept.openai.responses.create(model=MODEL, input="Go on", previous_response_id=last.id)
    assert store.responses.items(last.id, "").count("Go on") == 8
    with Database(settings.store) as database, database.read() as connection:
        stored = connection.scalar(select(func.sum(func.length(responses.c.added))))
    assert stored < 120_000


async def test_a_conversation_is_as_old_as_its_last_response(kept, store, settings):
    first = await kept.openai.responses.create(model=MODEL, input="Hello")
    now = datetime.now(UTC)
    with Database(settings.store) as database:
        with database.write() as connection:  # not old enough for the gateway's own maintenance
            connection.execute(update(responses).values(day=(now - timedelta(days=29)).date().isoformat()))
        last = await kept.openai.responses.create(model=MODEL, input="Go on", previous_response_id=first.id)
        delete_old_traces(database, 30, now + timedelta(days=2))
        assert "Hello" in store.responses.items(last.id, "")
        with database.write() as connection:
            connection.execute(delete(responses).where(responses.c.id == first.id))
    assert store.responses.items(last.id, "") is None  # a part of a conversation is not passed off as the whole
