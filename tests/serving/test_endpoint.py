"""Requests before they reach a model (limits, keys, fields), and faults of every kind."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from odar.errors import KeyRefused
from odar.serving.budgets import Need, Reservation
from support import fault_server as faults
from support.gateway import turn
from support.live_gateway import api_key

CHAT = "/v1/chat/completions"
BODY = {"model": "odar-simple", "messages": turn()}


KEYS = (
    api_key("k1", "any"),
    api_key("k2", "limited", models=("odar",), max_path="simple"),
    api_key("k3", "spent", rate_per_min=1.0),
    api_key("k4", "poor", budget_day_usd=1.0),
)


class NearlyEmptyBudgets:
    """Budgets of these keys."""

    def __init__(self) -> None:
        self.charged: list[Any] = []

    def reserve(self, key_id: str, trace_id: str, needs: Sequence[Need], lease_s: float) -> Future[Reservation]:
        granted: Future[Reservation] = Future()
        if key_id == "k3":
            refused = KeyRefused("the budget of this key is used up until tomorrow", "budget", 3600)
            granted.set_exception(refused)
        else:
            cheapest = Need(0.0, needs[-1].tokens)
            granted.set_result(Reservation(trace_id, key_id, "2026-11-15", cheapest, len(needs) - 1, 0.0))
        return granted

    def charge(self, reservation: Reservation, usd: float | None, tokens: int | None) -> None:
        self.charged.append((reservation.key_id, usd, tokens))


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {}, "model"),
        (CHAT, {"model": "odar"}, "messages"),
        (CHAT, {"model": "odar", "messages": [{"role": "king", "content": ""}]}, "messages[0].role"),
        (CHAT, BODY | {"odar": {"path": "hard"}}, "odar.path"),
        ("/v1/responses", {"model": "odar"}, "input"),
        ("/v1/feedback", {"trace_id": "x", "correct": "yes"}, "correct"),
        ("/v1/feedback", {"trace_id": "x", "correct": True, "nte": "five"}, "nte"),
        (CHAT, {"model": "odar", "messages": turn(), "odar": {"dial": "best"}}, "odar.dial"),
        (CHAT, {"model": "odar", "messages": turn(), "odar": {"dial": 0}}, "odar.dial"),
        (CHAT, {"model": "odar", "messages": turn(), "odar": {"dial": 5, "value_usd": 0.1}}, "odar.dial"),
        (CHAT, {"model": "odar-quality", "messages": turn(), "odar": {"dial": "economy"}}, "odar.dial"),
    ],
)
async def test_bad_fields_are_named(live, up, path, body, param):
    status, _, reply = await live.post(path, body)
    assert (status, reply["error"]["param"], reply["error"]["type"]) == (400, param, "invalid_request_error")
    assert reply["error"]["message"].startswith(f"{param}: ")
    assert up.requests == []


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1]", b"\xff", b'{"model": NaN}', b'{"a": "\\ud800"}', b"[" * 5000, b'{"a":' * 80 + b"1" + b"}" * 80]
)  # fmt: skip
async def test_invalid_bodies_are_rejected(live, body):
    async with live.http.post(live.url + CHAT, data=body) as response:
        assert response.status == 400
        assert (await response.json())["error"]["param"] == "body"


async def test_a_body_over_the_limit_is_413(start):
    live = await start(gateway__max_body_mb=0.001)
    status, _, reply = await live.post(CHAT, BODY | {"user": "x" * 2000})
    assert (status, reply["error"]["type"]) == (413, "request_too_large")

    async def chunks():
        for _ in range(20):
            yield b" " * 100

    async with live.http.post(live.url + CHAT, data=chunks()) as response:
        assert response.status == 413


async def test_a_body_that_does_not_arrive_times_out(start):
    live = await start(constants={"odar.serving.exchange.BODY_TIMEOUT_S": 0.1})

    async def slowly():
        yield b"{"
        await asyncio.sleep(5)

    async with live.http.post(live.url + CHAT, data=slowly()) as response:
        assert response.status == 408


async def test_requests_over_the_limit_are_rejected_at_once(start, up):
    live = await start(gateway__max_in_flight=2)
    up.behave(faults.ok(delay_s=0.5))
    results = await asyncio.gather(*(live.post(CHAT, BODY) for _ in range(6)))
    statuses = sorted(status for status, _, _ in results)
    assert statuses == [200, 200, 429, 429, 429, 429]
    refused = next(result for result in results if result[0] == 429)
    assert refused[1]["retry-after"] == "1"
    assert refused[2]["error"]["code"] == "overloaded"
    assert len(up.requests) == 2
    assert (await live.post(CHAT, BODY))[0] == 200


class TestKeys:
    @pytest.fixture
    async def locked(self, start):
        live = await start(keys=KEYS)
        live.memory_store.budgets = NearlyEmptyBudgets()
        return live

    async def test_missing_or_wrong_key_is_401(self, locked):
        assert (await locked.post(CHAT, BODY))[0] == 401
        status, _, reply = await locked.post(CHAT, BODY, headers={"authorization": "Bearer wrong"})
        assert (status, reply["error"]["code"]) == (401, "invalid_api_key")
        async with locked.http.get(locked.url + "/v1/models") as response:
            assert response.status == 401

    async def test_both_key_headers_are_accepted(self, locked):
        for headers in ({"authorization": "Bearer any"}, {"x-api-key": "any"}):
            assert (await locked.post(CHAT, BODY, headers=headers))[0] == 200
        assert locked.memory_store.entries[0].key_id == "k1"

    async def test_models_and_paths_outside_the_scope_are_rejected(self, locked, up):
        headers = {"x-api-key": "limited"}
        status, _, reply = await locked.post(CHAT, BODY, headers=headers)
        assert (status, reply["error"]["code"]) == (403, "model_not_allowed")
        hard = {"model": "odar", "messages": turn(), "odar": {"path": "hard"}}
        status, _, reply = await locked.post(CHAT, hard, headers=headers)
        assert (status, reply["error"]["code"]) == (403, "path_not_allowed")
        assert up.requests == []

    async def test_a_limited_key_makes_no_slow_call(self, locked, slow):
        body = {"model": "odar", "messages": turn("word " * 200), "odar": {"dial": "quality"}}
        status, _, reply = await locked.post(CHAT, body, headers={"x-api-key": "limited"})
        assert (status, reply["odar"]["path"], reply["odar"]["stages"]) == (200, "simple", ["fast"])
        assert slow.requests == []

    async def test_a_request_may_not_cost_more_than_the_budget_has_left(self, locked, up):
        status, _, reply = await locked.post(CHAT, BODY, headers={"x-api-key": "poor"})
        assert (status, reply["error"]["code"]) == (422, "budget_exceeded")
        assert up.requests == []
        assert locked.memory_store.budgets.charged[-1] == ("k4", 0.0, 0)

    async def test_a_used_up_budget_is_429(self, locked):
        status, headers, reply = await locked.post(CHAT, BODY, headers={"x-api-key": "spent"})
        assert (status, headers["retry-after"], reply["error"]["code"]) == (429, "3600", "key_limit")


async def test_without_keys_requests_from_web_pages_are_rejected(live):
    for headers in ({"origin": "https://evil.example"}, {"host": "evil.example"}):
        status, _, reply = await live.post(CHAT, BODY, headers=headers)
        assert (status, reply["error"]["code"]) == (403, "loopback_only")
    assert (await live.post(CHAT, BODY, headers={"origin": "http://localhost:3000"}))[0] == 200


FAULTS = {
    "hang": (faults.hang(), 504),
    "garbage": (faults.garbage(), 502),
    "html": (faults.html(), 502),
    "not HTTP": (faults.not_http(), 502),
    "truncated": (faults.truncated(), 502),
    "reset": (faults.reset(), 502),
    "empty choices": (faults.empty_choices(), 502),
    "503": (faults.status(503), 503),
    "422": (faults.status(422), 422),
    "a redirect": (faults.status(302), 502),
    "no status of HTTP": (faults.status(999), 502),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
async def test_every_error_has_its_status(live, up, slow, fault, stream):
    behaviour, expected = FAULTS[fault]
    up.behave(behaviour)
    slow.behave(behaviour)
    for model in ("quick", "odar-simple"):
        deadline_s = 0.4 if fault == "hang" else 30
        body = {"model": model, "messages": turn(), "odar": {"deadline_s": deadline_s}, "stream": stream}
        status, _, reply = await live.post(CHAT, body)
        assert (status, reply["error"]["code"] is not None or status < 500 or status == 503) == (expected, True)


async def test_small_limits_reject_or_degrade(live):
    status, _, reply = await live.post(CHAT, BODY | {"odar": {"max_cost_usd": 0}})
    assert (status, reply["error"]["code"]) == (422, "budget_exceeded")
    status, _, reply = await live.post(CHAT, {"model": "odar-hard", "messages": turn(), "odar": {"max_calls": 3}})
    assert (status, reply["odar"]["calls"], reply["odar"]["degraded"]) == (200, 3, True)


async def test_a_deadline_that_cannot_be_met_is_an_error(live):
    status, _, reply = await live.post(CHAT, BODY | {"odar": {"deadline_s": 5e-324}})
    assert (status, reply["error"]["code"]) == (504, "deadline")


async def test_the_breaker_opens_and_closes(start, up, slow):
    live = await start(constants={"odar.providers.breaker.FAILURES": 2, "odar.providers.breaker.COOLDOWN_S": 600})
    up.behave(faults.status(500))
    for _ in range(2):
        assert (await live.post(CHAT, {"model": "quick", "messages": turn()}))[0] == 500
    status, headers, reply = await live.post(CHAT, {"model": "quick", "messages": turn()})
    assert (status, reply["error"]["code"], len(up.requests)) == (503, "circuit_open", 2)
    assert "retry-after" in headers
    assert (await live.post(CHAT, BODY))[0] == 200  # the slow agent stands in
    up.behave(faults.ok())
    breaker = live.service.breakers["f"]
    now = breaker._clock()
    breaker._clock = lambda: now + 601
    assert (await live.post(CHAT, {"model": "quick", "messages": turn()}))[0] == 200
    async with live.http.get(live.url + "/metrics") as response:
        assert 'odar_breaker_state{provider="f"} 0.0' in await response.text()


async def test_metrics_contain_no_user_text(live):
    await live.post(CHAT, {"model": "odar-hard", "messages": turn("a secret question")})
    await live.post(CHAT, {"model": "nope", "messages": turn()})
    async with live.http.get(live.url + "/metrics") as response:
        text = await response.text()
        assert response.headers["content-type"].startswith("text/plain")
    assert 'odar_requests_total{endpoint="chat.completions",path="hard",status="200"} 1.0' in text
    assert 'status="404"} 1.0' in text
    assert 'odar_calls_total{model="deep",provider="s"} 5.0' in text
    assert "secret" not in text


async def test_unknown_paths_are_404(live):
    async with live.http.get(live.url + "/v1/nothing") as response:
        assert (response.status, (await response.json())["error"]["code"]) == (404, "unknown_url")
    async with live.http.get(live.url + CHAT) as response:
        assert (response.status, "error" in await response.json()) == (405, True)


async def test_an_unexpected_error_discloses_nothing(live, monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("a secret")

    monkeypatch.setattr(live.service.odar.planner, "assign", broken)
    status, _, reply = await live.post(CHAT, BODY)
    assert (status, "secret" in json.dumps(reply)) == (500, False)
    assert "a secret" in caplog.text
    assert live.service.concurrency_limit.in_flight == 0


async def test_no_task_is_left_after_requests(live, up):
    async def tasks() -> float:
        async with live.http.get(live.url + "/metrics") as response:
            text = await response.text()
        return float(re.search(r"^odar_tasks (\S+)$", text, re.MULTILINE).group(1))

    await live.post("/v1/chat/completions", {"model": "odar", "messages": turn()})
    before = await tasks()
    up.behave(faults.hang())
    asked = [
        asyncio.create_task(live.post("/v1/chat/completions", {"model": "quick", "messages": turn()}))
        for _ in range(4)
    ]
    async with asyncio.timeout(60):
        while up.busy < 4:
            await asyncio.sleep(0.005)
        assert await tasks() >= before + 4
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        while await tasks() > before:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_upstream_500_is_passed_on_and_not_logged_as_unexpected(live, up, caplog, stream):
    up.behave(faults.status(500))
    code, _ = await live.text(CHAT, {"model": "quick", "messages": turn(), "stream": stream})
    assert code == 500
    assert "unexpected error" not in caplog.text


async def test_a_model_of_an_unconfigured_provider_is_404(live, up):
    for more in ({}, {"stream": True}):
        status, _, reply = await live.post(CHAT, {"model": "gpt-5.1", "messages": turn(), **more})
        assert (status, reply["error"]["code"]) == (404, "model_not_found")
    assert up.requests == []
    async with live.http.get(live.url + "/v1/models") as response:
        listed = {model["id"] for model in (await response.json())["data"]}
    assert "gpt-5.1" not in listed and {"odar", "quick", "deep"} <= listed


async def test_a_path_with_a_slash_at_its_end_is_not_redirected(live):
    async with live.http.get(live.url + "/v1/models/", allow_redirects=False) as response:
        assert (response.status, response.headers.get("location")) == (404, None)
    async with live.http.get(live.url + "/healthz/", allow_redirects=False) as response:
        assert (response.status, response.headers.get("location")) == (404, None)


async def test_a_key_of_the_simple_path_may_not_name_the_slow_model(start, slow):
    live = await start(keys=[api_key("k", "narrow", max_path="simple"), api_key("w", "wide", max_path="hard")])
    cases = [
        ("narrow", "deep", 403),
        ("narrow", "s/deep", 403),
        ("narrow", "quick", 200),
        ("narrow", "f/quick", 200),
    ]
    for secret, model, expected in [*cases, ("wide", "deep", 200), ("wide", "s/deep", 200)]:
        body = {"model": model, "messages": turn()}
        status, _, reply = await live.post(CHAT, body, headers={"x-api-key": secret})
        assert status == expected, reply
