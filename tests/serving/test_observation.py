"""Observation (SPEC 10.3, 10.4): replies are slow's own, work in the background is bounded, paid and invisible."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odar.config import load_settings
from odar.errors import ProviderError
from odar.serving.budgets import OBSERVATION
from odar.serving.observation import MAX_TASKS, TrafficObserver
from odar.serving.store import Store
from odar.traces.database import Database, observations, spending
from odar.types import Usage
from support.gateway import turn
from support.live_gateway import Live, api_key
from support.scripted import ScriptedProvider, completion
from support.waiting import until

CHAT = "/v1/chat/completions"
QUESTION = "What is 17 * 23 + 4?"
MODELS = {
    "quick": {"provider": "f", "family": "a", "price": {"input": 0.1, "output": 0.4}},
    "other": {"provider": "o", "family": "b", "price": {"input": 0.1, "output": 0.4}},
    "deep": {"provider": "s", "family": "c", "price": {"input": 3, "output": 15}},
}
REPLY = "17 * 23 is 391, and 391 + 4 makes 395."


def says(name: str, answer: str | Callable[[int], str]) -> ScriptedProvider:
    def script(request: Any, index: int) -> Any:
        text = answer if isinstance(answer, str) else answer(index)
        return [completion(text)] * request.n

    return ScriptedProvider(script, name, usage=Usage(100, 0, 50, 0))


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odar.serving.observation.PAUSE_S", 0)


class Observed:
    """A gateway with a real store, its three scripted models, and what was stored."""

    def __init__(
        self, live: Live, store: Store, providers: dict[str, ScriptedProvider], overrides: dict[str, Any]
    ) -> None:
        self.overrides = overrides
        self.live = live
        self.store = store
        self.fast, self.second, self.slow = (providers[name] for name in "fos")
        self.observer: TrafficObserver = live.service.traffic_observer

    async def ask(self, model: str = "odar", times: int = 1, question: str = QUESTION, **body: Any) -> list[Any]:
        body = {"model": model, "messages": turn(question), **body}
        replies = [await self.live.post(CHAT, body) for _ in range(times)]
        assert {status for status, _, _ in replies} == {200}, replies
        return [reply for _, _, reply in replies]

    async def settled(self, number: int) -> None:
        """Wait until this many questions are observed or dropped."""
        await until(lambda: self.observer.observed + sum(self.observer.dropped.values()) >= number)

    def rows(self) -> list[dict[str, Any]]:
        with Database(self.store.settings) as database, database.read() as connection:
            found = connection.execute(observations.select().order_by(observations.c.at)).mappings()
            return [dict(row) for row in found]

    async def spent_usd(self) -> float:
        await self.store.run(lambda: self.store.budgets.close(5))
        with Database(self.store.settings) as database, database.read() as connection:
            found = (
                connection.execute(spending.select().where(spending.c.key_id.startswith(OBSERVATION)))
                .mappings()
                .all()
            )
        return sum(row["cost_usd"] for row in found)


def overrides_of(folder: Path, content: bool = False, **observe: Any) -> dict[str, Any]:
    """Settings of the gateway and of its store."""
    return {
        "models": MODELS,
        "providers": {name: {"kind": "openai", "base_url": "http://127.0.0.1:9/v1"} for name in "fos"},
        "second__model": "other",
        "policy": "cascade",
        "store__url": str(folder / "odar.db"),
        "store__content": content,
        "observe": observe,
    }


def open_store(overrides: dict[str, Any]) -> Store:
    return Store(load_settings("tiny", environ={}, fast__model="quick", slow__model="deep", **overrides))


@pytest.fixture
async def observed(start: Any, tmp_path: Path) -> Any:
    async def go(
        fast: Any = "Answer: 395",
        second: Any = "Answer: 395",
        slow: Any = REPLY,
        keys: Any = (),
        **observe: Any,
    ) -> Observed:
        overrides = overrides_of(tmp_path, **observe)
        providers = {
            name: each if isinstance(each, ScriptedProvider) else says(name, each)
            for name, each in (("f", fast), ("o", second), ("s", slow))
        }
        store = open_store(overrides)
        if keys:
            store._version = ()
            store._refresh_keys = lambda: None  # type: ignore[method-assign]
            store.key_cache.load(keys)
        live = await start(store=store, app_options={"providers": providers}, **overrides)
        return Observed(live, store, providers, overrides)

    return go


def without_ids(reply: Any) -> str:
    """The reply without what differs between any two requests: ids, the time, seconds."""
    text = reply if isinstance(reply, str) else json.dumps(reply)
    return re.sub(r'[0-9a-f]{32}|"created": ?\d+|"seconds": ?[\d.e-]+|: odar is working\n\n', "", text)


async def test_replies_are_those_of_pass_through(observed: Any) -> None:
    gateway = await observed(enabled=True, share=1)
    (named,) = await gateway.ask("deep")
    for model in ("odar", "odar-economy", "odar-hard"):
        (reply,) = await gateway.ask(model)
        assert without_ids(reply) == without_ids(named)
        assert reply["choices"][0]["message"]["content"] == REPLY
    assert gateway.slow.requests[0].messages == gateway.slow.requests[1].messages
    await gateway.settled(4)


async def test_streams_are_those_of_pass_through(observed: Any) -> None:
    gateway = await observed(enabled=True, share=1)
    texts = [
        (await gateway.live.text(CHAT, {"model": model, "messages": turn(QUESTION), "stream": True}))[1]
        for model in ("deep", "odar")
    ]
    assert without_ids(texts[0]) == without_ids(texts[1])
    assert "391," in texts[0]


async def test_the_cascade_answers_in_the_background_with_slows_reply(observed: Any) -> None:
    gateway = await observed(fast="Answer: 381", second="Answer: 395", enabled=True, share=1)
    gateway.observer._draw = lambda: 0.5  # not asked a second time
    await gateway.ask()
    await gateway.settled(1)
    (row,) = gateway.rows()
    assert row["stages"].startswith("fast,second,slow")
    assert row["same"] and row["slow_same"] is None
    assert len(gateway.slow.requests) == 1, "slow's reply was paid for already"
    assert row["slow_usd"] == pytest.approx((100 * 3 + 50 * 15) / 1e6)
    assert row["cascade_usd"] == pytest.approx(row["slow_usd"] + 2 * (100 * 0.1 + 50 * 0.4) / 1e6)
    assert row["spent_usd"] == pytest.approx(row["cascade_usd"] - row["slow_usd"])
    assert await gateway.spent_usd() == pytest.approx(row["spent_usd"])
    assert row["question"] is row["slow_answer"] is row["cascade_answer"] is None, "without store.content"


async def test_differing_answers_are_kept_with_content_only(observed: Any) -> None:
    gateway = await observed(fast="Answer: 381", second="Answer: 381", enabled=True, share=1, content=True)
    await gateway.ask()
    await gateway.settled(1)
    (row,) = gateway.rows()
    assert row["same"] is False
    assert (row["question"], row["slow_answer"], row["cascade_answer"]) == (
        QUESTION, REPLY, "Answer: 381",
    )  # fmt: skip
    report = gateway.store.observations.report(examples=5)
    assert report["differing"][0]["question"] == QUESTION
    assert report["total"]["agreement"]["mean"] == 0
    assert report["total"]["saved"] > 0.5


async def test_other_models_and_open_ended_requests(observed: Any) -> None:
    gateway = await observed(enabled=True, share=1)
    await gateway.ask("quick")
    await gateway.ask(question="Write a haiku about rain.")
    await gateway.settled(1)
    (row,) = gateway.rows()
    assert row["kind"] == "open-ended" and row["same"] is None


@pytest.mark.parametrize("fault", ["hangs", "fails", "garbage"])
async def test_faults_in_the_background_are_invisible(observed: Any, fault: str) -> None:
    script = says("f", "Answer: 395")
    if fault == "hangs":
        script.meet = asyncio.Barrier(10_000)
    elif fault == "fails":
        script.script = lambda request, index: ProviderError("down", provider="f", status=500)
    else:
        script.script = lambda request, index: [completion("")] * request.n
    gateway = await observed(fast=script, second=script, enabled=True, share=1)
    replies = await asyncio.gather(*(gateway.ask(times=10) for _ in range(10)))
    assert {reply["choices"][0]["message"]["content"] for each in replies for reply in each} == {REPLY}
    if fault == "hangs":
        await until(lambda: script.in_flight == MAX_TASKS)
        assert len(gateway.observer._queue) == 100 - MAX_TASKS
    assert all(breaker.state == "closed" for breaker in gateway.live.service.breakers.values())


async def test_the_queue_is_bounded(observed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odar.serving.observation.MAX_QUEUED", 3)
    hanging = says("f", "Answer: 395")
    hanging.meet = asyncio.Barrier(1000)
    gateway = await observed(fast=hanging, enabled=True, share=1)
    await gateway.ask(times=20)
    await until(lambda: gateway.observer.dropped["queue"] == 20 - MAX_TASKS - 3)
    _, text = await asyncio.to_thread(lambda: (0, gateway.live.service.metrics.text().decode()))
    assert f'odar_observe_dropped_total{{reason="queue"}} {20 - MAX_TASKS - 3}' in text


async def test_a_key_leaves_room_in_the_queue(observed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odar.serving.observation.MAX_QUEUED", 6)
    hanging = says("f", "Answer: 395")
    hanging.meet = asyncio.Barrier(1000)
    gateway = await observed(
        fast=hanging, enabled=True, share=1, keys=[api_key("g", "greedy"), api_key("m", "modest")]
    )

    async def ask(secret: str) -> None:
        body = {"model": "odar", "messages": turn(QUESTION)}
        assert (await gateway.live.post(CHAT, body, headers={"x-api-key": secret}))[0] == 200

    for _ in range(MAX_TASKS + 10):
        await ask("greedy")
    await until(lambda: gateway.observer.dropped["queue"] == 7)
    await ask("modest")
    await until(lambda: [entry.key_id for entry, _ in gateway.observer._queue] == ["g", "g", "g", "m"])


async def test_the_budget_is_never_exceeded(observed: Any) -> None:
    gateway = await observed(fast="Answer: 381", second="Answer: 395", enabled=True, share=1, budget_usd_day=0.05)
    await asyncio.gather(*(gateway.ask(times=10) for _ in range(20)))
    await gateway.settled(200)
    assert gateway.observer.dropped["budget"] > 0
    assert gateway.observer.observed > 0
    assert await gateway.spent_usd() <= 0.05


async def test_no_price_means_no_observation(observed: Any) -> None:
    gateway = await observed(enabled=True, share=1, budget_usd_day=0)
    await gateway.ask(times=3)
    await gateway.settled(3)
    assert gateway.observer.dropped == {"budget": 3}
    assert len(gateway.fast.requests) == 0


async def test_serving_with_a_live_check(observed: Any) -> None:
    gateway = await observed(slow="Answer: 395", share=1)
    (reply,) = await gateway.ask()
    assert reply["model"] == "odar" and reply["odar"]["stages"] == ["fast", "second"]
    await gateway.settled(1)
    (row,) = gateway.rows()
    assert row["same"] and row["slow_same"]
    assert gateway.store.observations.comparison() == (0, 0, 1)
    assert len(gateway.slow.requests) == 2, "once for the answer, once for its agreement with itself"
    assert gateway.live.service.odar.agreement.questions() == {"": 1}
    await gateway.ask(question="Write a haiku about rain.")
    await gateway.ask("deep")
    assert gateway.observer.observed == 1, "neither an open-ended request nor a model that the client named"


async def test_too_large_an_excess_falls_back_to_slow_until_resumed(
    observed: Any, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = await observed(
        fast="Answer: 381", second="Answer: 381", slow="Answer: 395", share=1, budget_usd_day=99
    )
    for _ in range(100):
        (reply,) = await gateway.ask()
        if gateway.observer.passes_through(""):
            break
        await gateway.settled(len(gateway.slow.requests) // 2)
    await until(lambda: gateway.observer.passes_through(""))
    questions = gateway.store.observations.comparison().questions
    assert 3 < questions < 30
    await gateway.ask(times=20)
    (reply,) = await gateway.ask()
    assert reply["model"] == "deep" and reply["choices"][0]["message"]["content"] == "Answer: 395"
    lines = [record.getMessage() for record in caplog.records if record.name == "odar.observe"]
    assert len(lines) == 1 and "odar observe --resume" in lines[0]
    text = await asyncio.to_thread(gateway.live.service.metrics.text)
    assert b"odar_fallback 1.0" in text and b'odar_excess_difference{bound="low"}' in text
    await gateway.settled(gateway.observer.observed)

    other = open_store(gateway.overrides)  # as the command does
    assert other.observations.resume()
    await other.close()
    await until(lambda: not gateway.observer.passes_through(""))
    (reply,) = await gateway.ask()
    assert reply["model"] == "odar"


async def test_a_key_without_slow_calls_is_still_served(observed: Any) -> None:
    secret = "odar_sk_" + "x" * 40
    gateway = await observed(enabled=True, share=1, keys=[api_key("k", secret, max_path="simple")])
    status, _, reply = await gateway.live.post(
        CHAT, {"model": "odar", "messages": turn(QUESTION)}, headers={"authorization": f"Bearer {secret}"}
    )
    assert status == 200 and reply["odar"]["path"] == "simple"
    assert not gateway.slow.requests
