"""The ledger compared with the bill of a server on localhost that counts tokens and computes prices itself."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as profile
from hypothesis import strategies as st

from odar.config import load_settings
from odar.difficulty.base import ConstantEstimator
from odar.engine import Odar
from odar.errors import OdarError
from support.fault_server import Exchange, FaultServer
from support.payloads import chat_payload, message_payload

# Billionths of a dollar a token, so that the server's arithmetic is in whole numbers.
OPENAI = {"input": 1250, "cached": 125, "output": 10_000, "written": 1562}
ANTHROPIC = {"input": 3000, "cached": 300, "output": 15_000, "written": 3750, "written_1h": 6000}

tokens = st.integers(0, 50_000)
counts = st.fixed_dictionaries(
    dict.fromkeys(("fresh", "cached", "written", "written_1h", "output", "reasoning"), tokens)
)
outcome = st.one_of(
    counts,
    counts,
    st.sampled_from(["refused", "busy", "broken", "late", "reset", "silent", "audio"]),
)
"""What the server does with one request: reply and bill these counts, or fail in one of these ways."""


@dataclass
class Biller:
    """A server for both protocols that keeps its own bill."""

    outcomes: list[Any]
    billed: int = 0
    """Billionths of a dollar."""
    uncertain: bool = False
    """Whether a client cannot know the price of something it did."""
    totals: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("input", "cached", "output", "written"), 0)
    )

    async def __call__(self, exchange: Exchange) -> None:
        outcome = self.outcomes.pop(0) if self.outcomes else "refused"
        anthropic = exchange.path.endswith("/messages")
        match outcome:
            case "refused":
                await exchange.send_json({"error": {"message": "no"}}, 400)
            case "busy":
                await exchange.send_json({"error": {"message": "later"}}, 429)
            case "broken":
                await exchange.send_json({"error": {"message": "oh"}}, 500)
            case "late":  # a proxy timed out; the model continued
                self._bill_unreported(anthropic)
                await exchange.send_json({"error": {"message": "late"}}, 504)
            case "reset":
                self._bill_unreported(anthropic)
                exchange.reset()
            case "silent":
                self._bill_unreported(anthropic)
                await exchange.send_json(message_payload("4", usage=None) if anthropic else _chat(None))
            case "audio":
                self.uncertain = True
                usage = {"prompt_tokens": 5, "completion_tokens": 5, "prompt_tokens_details": {"audio_tokens": 3}}
                tooled = {"input_tokens": 5, "output_tokens": 5, "server_tool_use": {"web_search_requests": 2}}
                await exchange.send_json(message_payload("4", usage=tooled) if anthropic else _chat(usage))
            case dict() if anthropic:
                await exchange.send_json(message_payload("Answer: 4", usage=self._anthropic(outcome)))
            case dict():
                await exchange.send_json(_chat(self._openai(outcome)))

    def _bill_unreported(self, anthropic: bool) -> None:
        """Bill a call without telling the client its usage."""
        self.uncertain = True
        self._book(ANTHROPIC if anthropic else OPENAI, 60, 0, 0, 0, 64)

    def _openai(self, n: dict[str, int]) -> dict[str, Any]:
        reasoning = min(n["reasoning"], n["output"])
        self._book(OPENAI, n["fresh"], n["cached"], n["written"], 0, n["output"])
        return {
            "prompt_tokens": n["fresh"] + n["cached"] + n["written"],
            "completion_tokens": n["output"],
            "prompt_tokens_details": {"cached_tokens": n["cached"], "cache_write_tokens": n["written"]},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }

    def _anthropic(self, n: dict[str, int]) -> dict[str, Any]:
        self._book(ANTHROPIC, n["fresh"], n["cached"], n["written"], n["written_1h"], n["output"])
        return {
            "input_tokens": n["fresh"],
            "cache_read_input_tokens": n["cached"],
            "cache_creation_input_tokens": n["written"] + n["written_1h"],
            "cache_creation": {
                "ephemeral_5m_input_tokens": n["written"],
                "ephemeral_1h_input_tokens": n["written_1h"],
            },
            "output_tokens": n["output"],
        }

    def _book(self, price: dict[str, int], fresh: int, cached: int, written: int, hourly: int, output: int) -> None:
        self.billed += fresh * price["input"] + cached * price["cached"] + output * price["output"]
        self.billed += written * price["written"] + hourly * price.get("written_1h", 0)
        for name, count in (
            ("input", fresh + cached + written + hourly),
            ("cached", cached),
            ("output", output),
            ("written", written + hourly),
        ):
            self.totals[name] += count


def _chat(usage: dict[str, Any] | None) -> dict[str, Any]:
    return chat_payload("Answer: 4", usage=usage)


def per_million(price: dict[str, int]) -> dict[str, float]:
    return {name: value / 1000 for name, value in price.items()}


async def run(biller: Biller, path: str, attempts: int, **limits: Any):
    async with FaultServer() as server:
        server.behave(biller)
        settings = load_settings(
            profile="tiny",
            models={
                "quick": {"provider": "o", "logprobs": True, "price": per_million(OPENAI)},
                "deep": {"provider": "a", "price": per_million(ANTHROPIC)},
            },
            providers={
                "o": {"kind": "openai", "base_url": server.url},
                "a": {"kind": "anthropic", "base_url": server.origin},
            },
            prompts="paper",
            policy="paper",
            fast__model="quick",
            slow__model="deep",
            calibration="",
            routing__samples=3,
        )
        with patch.multiple("odar.providers.http", ATTEMPTS=attempts, FIRST_PAUSE_S=0.0):
            async with Odar(settings, estimator=ConstantEstimator(0.5)) as odar:
                try:
                    answer = await odar.aask("What is 2 + 2?", path=path, **limits)
                    return answer.trace.spend, answer.trace.calls
                except OdarError as error:
                    return error.spend, ()


@profile(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(outcome, max_size=9), st.sampled_from(["simple", "medium", "hard"]), st.integers(1, 3))
@example([dict.fromkeys(("fresh", "cached", "written", "written_1h", "output", "reasoning"), 7)] * 4, "hard", 1)
@example(
    ["busy", dict.fromkeys(("fresh", "cached", "written", "written_1h", "output", "reasoning"), 1)], "simple", 2
)
def test_the_ledger_equals_the_bill_of_the_server(outcomes, path, attempts):
    biller = Biller(list(outcomes))
    spend, calls = asyncio.run(run(biller, path, attempts))
    if biller.uncertain:
        assert spend.cost_usd is None
    else:
        assert spend.cost_usd is not None
        assert spend.cost_usd == pytest.approx(biller.billed / 1e9, abs=1e-9, rel=1e-12)
        assert round(spend.cost_usd * 100) == round(biller.billed / 1e7)
        usage = spend.usage
        assert {"input": usage.input, "cached": usage.cached, "output": usage.output, "written": usage.written} == (
            biller.totals
        )
    for call in calls:
        assert call.cost_usd is None or call.cost_usd >= 0


@dataclass
class WatchedBiller(Biller):
    """Record the bill at the arrival of each request."""

    before: list[int] = field(default_factory=list)

    async def __call__(self, exchange: Exchange) -> None:
        self.before.append(self.billed)
        await super().__call__(exchange)


@profile(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(outcome, max_size=6), st.floats(0, 0.2), st.integers(1, 3))
def test_no_request_is_sent_after_a_bill_above_the_limit(outcomes, limit, attempts):
    """A bill can exceed the reservation and the limit once; no request follows.

    This holds on the Medium path, whose calls are sequential; those of the Hard path are concurrent.
    """
    biller = WatchedBiller(list(outcomes))
    asyncio.run(run(biller, "medium", attempts, max_cost_usd=limit))
    assert all(before / 1e9 <= limit for before in biller.before)


honest = st.fixed_dictionaries({"fresh": st.integers(0, 60), "output": st.integers(0, 64)}).map(
    lambda n: {**dict.fromkeys(("cached", "written", "written_1h", "reasoning"), 0), **n}
)


@profile(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.one_of(honest, st.sampled_from(["refused", "busy", "broken", "late", "reset", "silent"])), max_size=9
    ),
    st.sampled_from(["simple", "medium", "hard"]),
    st.floats(0, 0.02),
)
def test_a_correct_server_never_bills_more_than_max_cost(outcomes, path, limit):
    biller = Biller(list(outcomes))
    asyncio.run(run(biller, path, 3, max_cost_usd=limit))
    assert biller.billed / 1e9 <= limit
