"""Limits on requests, their memory and their threads, with a fair part for each key."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.errors import KeyRefused
from odar.serving.concurrency import MAX_WAITING, RETRY_S, ConcurrencyLimit, PerKeyThreads
from odar.serving.errors import ApiError
from odar.serving.keys import NO_KEY
from support.gateway import turn
from support.live_gateway import api_key

CHAT = "/v1/chat/completions"
COUNT = "/v1/messages/count_tokens"


@given(st.integers(1, 8), st.lists(st.booleans(), max_size=40))
def test_in_flight_requests_never_exceed_the_limit(limit, arrivals):
    limiter, in_flight = ConcurrencyLimit(limit), 0
    for arrives in arrivals:
        if not arrives:
            if in_flight:
                limiter.release()
                in_flight -= 1
        elif in_flight < limit:
            limiter.acquire()
            in_flight += 1
        else:
            with pytest.raises(ApiError) as raised:
                limiter.acquire()
            assert (raised.value.status, raised.value.code) == (429, "overloaded")
        assert limiter.in_flight == in_flight <= limit


def test_draining_rejects_new_requests_and_lets_running_ones_finish():
    limiter = ConcurrencyLimit(2)
    limiter.acquire()
    limiter.draining = True
    with pytest.raises(ApiError) as raised:
        limiter.acquire()
    assert (raised.value.status, raised.value.code, raised.value.retry_after) == (503, "draining", RETRY_S)
    limiter.release()
    assert limiter.in_flight == 0


@given(st.integers(1, 12), st.lists(st.sampled_from("abc"), max_size=40))
def test_a_key_leaves_as_many_slots_as_it_holds(limit, arrivals):
    limiter, held = ConcurrencyLimit(limit), Counter()
    for id_ in arrivals:
        free = limit - held.total()
        if held[id_] < free:
            limiter.acquire(api_key(id_, id_))
            held[id_] += 1
        else:
            with pytest.raises(ApiError):
                limiter.acquire(api_key(id_, id_))
    assert limiter.in_flight == held.total()
    for id_ in held.elements():
        limiter.release(api_key(id_, id_))
    assert limiter.in_flight == 0


def test_limits_of_a_key_are_checked_at_the_headers():
    now = [0.0]
    limiter = ConcurrencyLimit(100, lambda: now[0])
    one, few = api_key("one", "1", max_parallel=1), api_key("few", "2", rate_per_min=2)
    limiter.acquire(one)
    with pytest.raises(KeyRefused, match="1 request at a time"):
        limiter.acquire(one)
    for _ in range(2):
        limiter.acquire(few)
        limiter.release(few)
    with pytest.raises(KeyRefused, match="2 requests a minute") as raised:
        limiter.acquire(few)
    assert (raised.value.retry_after, limiter.in_flight) == (30, 1)
    now[0] = 30.0
    limiter.acquire(few)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 60)), max_size=40))
def test_a_key_leaves_as_many_bytes_as_it_holds(arrivals):
    limiter, held = ConcurrencyLimit(1000, max_bytes=100), Counter()
    for id_, size in arrivals:
        free = 100 - held.total()
        if size <= free and (not held[id_] or held[id_] + size <= free):
            limiter.hold_memory(api_key(id_, id_), size)
            held[id_] += size
        else:
            with pytest.raises(ApiError) as raised:
                limiter.hold_memory(api_key(id_, id_), size)
            assert (raised.value.status, raised.value.code) == (429, "overloaded")
    for id_, size in held.items():
        limiter.acquire(api_key(id_, id_))
        limiter.release(api_key(id_, id_), size)
    limiter.hold_memory(api_key("d", "d"), 5000)  # nothing else is in memory


def test_requests_of_this_machine_share_all_bytes():
    limiter = ConcurrencyLimit(1000, max_bytes=100)
    limiter.hold_memory(NO_KEY, 60)
    limiter.hold_memory(NO_KEY, 40)
    with pytest.raises(ApiError, match="max_body_mb"):
        limiter.hold_memory(NO_KEY, 1)


async def test_one_request_of_each_key_runs_at_a_time():
    threads = PerKeyThreads("test", 4)
    running, most = 0, 0
    go = asyncio.Event()

    async def request(key):
        nonlocal running, most
        async with threads.turn_of(key):
            running += 1
            most = max(most, running)
            await go.wait()
            running -= 1

    a, b = api_key("a", "1"), api_key("b", "2")
    tasks = [asyncio.create_task(request(key)) for key in (a, a, a, b)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert running == 2
    go.set()
    await asyncio.gather(*tasks)
    assert most == 2
    assert not threads._locks


async def test_a_slow_request_of_one_key_delays_no_other():
    threads = PerKeyThreads("test", 1)
    a, b = api_key("a", "1"), api_key("b", "2")
    async with (
        asyncio.timeout(10),
        threads.turn_of(a),
        threads.turn_of(b),
    ):  # while the body of the first arrives, say
        assert await threads.run(lambda: 4) == 4


async def test_too_many_waiting_requests_are_refused():
    threads = PerKeyThreads("test", 1)
    go = asyncio.Event()

    async def request():
        async with threads.turn_of(NO_KEY):
            await go.wait()

    tasks = [asyncio.create_task(request()) for _ in range(MAX_WAITING + 2)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    refused = [task.exception() for task in tasks if task.done()]
    assert [(type(error), error.status) for error in refused] == [(ApiError, 429)]
    go.set()
    await asyncio.gather(*tasks[:-1])


@pytest.mark.parametrize("path", [COUNT, "/v1/feedback"])
async def test_the_rate_of_a_key_covers_requests_without_a_model(start, path):
    live = await start(keys=[api_key("k", "secret", rate_per_min=2)])
    body = {"model": "quick", "messages": turn(), "trace_id": "none", "correct": True}
    headers = {"x-api-key": "secret"}
    seen = [(await live.post(path, body, headers=headers))[0] for _ in range(4)]
    assert seen[2:] == [429, 429]
    assert 429 not in seen[:2]


async def test_counting_tokens_does_not_delay_large_questions(start, monkeypatch):
    entered, go = threading.Event(), threading.Event()

    def slow_count(query):
        entered.set()
        assert go.wait(60)
        return 1

    monkeypatch.setattr("odar.serving.endpoint.count_tokens", slow_count)
    live = await start(keys=[api_key(f"k{i}", f"secret{i}") for i in range(3)])
    body = {"model": "quick", "messages": turn("word " * 10_000)}
    counts = [
        asyncio.create_task(live.post(COUNT, body, headers={"x-api-key": f"secret{i % 2}"})) for i in range(16)
    ]
    try:
        assert await asyncio.to_thread(entered.wait, 60)
        async with asyncio.timeout(60):
            for _ in range(10):
                assert (await live.post(CHAT, body, headers={"x-api-key": "secret2"}))[0] == 200
    finally:
        go.set()
    assert {(await count)[0] for count in counts} == {200}


async def test_a_key_sees_only_its_models_on_the_dashboard(start):
    keys = [api_key("k", "narrow", models=("quick",)), api_key("a", "chief", models=("quick",), admin=True)]
    live = await start(keys=keys)
    await live.post(CHAT, {"model": "quick", "messages": turn()}, headers={"x-api-key": "chief"})
    seen = {}
    for secret in ("narrow", "chief"):
        async with live.http.get(live.url + "/dashboard/api/models", headers={"x-api-key": secret}) as response:
            report = await response.json()
        seen[secret] = {model["name"] for model in report["models"]}, set(report["breakers"])
    assert seen["narrow"] == ({"quick"}, {"f"})
    assert {"quick", "deep"} <= seen["chief"][0]
