"""Plans: estimates do not block the event loop, a failing estimator is replaced, and prices follow the lengths."""

from __future__ import annotations

import asyncio
import dataclasses
import threading

import pytest

from odar.calibration_file import Calibration, Source, Statistics
from odar.call_prices import call_prices, usual_lengths
from odar.catalogue import ModelCard, Price
from odar.difficulty.base import estimate_turn, open_estimator
from odar.difficulty.estimator import shipped_estimator
from odar.engine import Odar
from odar.planning import LONG_TEXT, AsyncEstimator
from odar.policy.base import stage_price
from odar.types import Estimate, Plan, Query, Stage, Step
from support.engine import settings, talk
from support.scripted import ScriptedProvider
from support.waiting import until

QUERIES = [
    Query("Is Paris the capital of France?"),
    Query("Prove that there are infinitely many primes.\nThen say why it matters."),
    Query("北京 is 首都?"),
    Query("a\ud800b"),
    Query("x " * 20_000),
    Query("巴黎是法国的首都吗" * 28_000),
]


class Panic(BaseException):
    """Raised by a tokenizer written in Rust; it is not an `Exception`."""


class Failing:
    """An estimator that fails after `works` estimates."""

    name = "failing"

    def __init__(self, error: BaseException, works: int = 1) -> None:
        self.error, self.works = error, works

    def estimate(self, query: Query) -> Estimate:
        self.works -= 1
        if self.works < 0:
            raise self.error
        return Estimate(0.9, self.name)


class Waiting:
    """An estimator that holds back estimates of long texts and records the thread of each."""

    name = "waiting"

    def __init__(self) -> None:
        self.may, self.began, self.threads = threading.Event(), threading.Event(), []

    def estimate(self, query: Query) -> Estimate:
        self.threads.append((len(query.text), threading.current_thread()))
        if len(query.text) > LONG_TEXT:
            self.began.set()
            assert self.may.wait(20)
        return Estimate(0.1, self.name)


async def test_estimates_equal_those_of_the_estimator() -> None:
    for parse in (True, False):
        estimates = AsyncEstimator(shipped_estimator(), parse=parse)
        found = [await estimates.estimate(query) for query in QUERIES]
        assert found == [estimate_turn(shipped_estimator(), query, parse=parse) for query in QUERIES]
        assert not any(estimate.fallback for estimate in found)
        estimates.close()


async def test_a_long_text_does_not_delay_other_estimates() -> None:
    estimator = Waiting()
    estimates = AsyncEstimator(estimator)
    long = asyncio.create_task(estimates.estimate(Query("x" * (LONG_TEXT + 1))))
    await until(estimator.began.is_set)
    assert (await estimates.estimate(Query("short"))).difficulty == 0.1
    assert not long.done()
    estimator.may.set()
    assert (await long).difficulty == 0.1
    here = threading.current_thread()
    assert {size: thread is here for size, thread in estimator.threads[1:]} == {5: True, LONG_TEXT + 1: False}
    estimates.close()


@pytest.mark.parametrize(
    "error", [ValueError("no"), MemoryError(), Panic()], ids=lambda error: type(error).__name__
)
@pytest.mark.parametrize("text", ["How many?", "word " * 1000], ids=["short", "long"])
@pytest.mark.parametrize("works", [0, 1], ids=["never", "at first"])
async def test_the_length_estimator_replaces_a_failing_one(error: BaseException, text: str, works: int) -> None:
    estimates = AsyncEstimator(Failing(error, works))
    found = await estimates.estimate(Query(text))
    right = open_estimator("length").estimate(Query(text))
    assert (found.difficulty, found.estimator) == (right.difficulty, "length")
    assert "failing failed" in found.fallback and type(error).__name__ in found.fallback
    estimates.close()


async def test_the_trace_names_a_failed_estimator() -> None:
    fast, slow = ScriptedProvider(talk, "fast"), ScriptedProvider(talk, "slow")
    odar = Odar(settings(), providers={"fast": fast, "slow": slow}, estimator=Failing(ValueError("secret text")))
    async with odar:
        trace = (await odar.aask("What is 2 + 2?")).trace
    assert trace.plan.estimate.estimator == "length"
    assert [reason for reason in trace.degradations if "failing failed" in reason]
    assert "secret text" not in str(trace.degradations)


async def test_cancelling_is_not_a_failure() -> None:
    estimator = Waiting()
    estimates = AsyncEstimator(estimator)
    long = asyncio.create_task(estimates.estimate(Query("x" * (LONG_TEXT + 1))))
    await until(estimator.began.is_set)
    long.cancel()
    with pytest.raises(asyncio.CancelledError):
        await long
    estimator.may.set()
    estimates.close()


def test_samples_of_one_request_share_its_prompt_and_measured_lengths_count():
    one = ModelCard("a", "p", "a", price=Price(1.0, 0.5, 4.0), n=True)
    cards = {"fast": one, "slow": dataclasses.replace(one, n=False)}
    calls, samples = call_prices(cards, 1000, {"fast": 600})
    assert calls == pytest.approx({"fast": (400 + 300 + 1200) / 1e6, "slow": (1000 + 1200) / 1e6})
    assert samples == pytest.approx({"fast": 1200 / 1e6, "slow": 2200 / 1e6})  # slow pays the prompt each time
    calls, samples = call_prices(cards, 1000, lengths={"fast": (50, 10)})
    assert calls["fast"] == pytest.approx((1050 + 40) / 1e6) and samples["fast"] == pytest.approx(40 / 1e6)
    plan = Plan(Estimate(0.5, "length"), prices=calls, sample_prices=samples)
    assert stage_price(Stage.parse("fast*5+slow"), plan) == pytest.approx((1050 + 5 * 40 + 2200) / 1e6)


def test_new_turns_of_a_cached_conversation_are_written_to_the_cache():
    cards = {"fast": ModelCard("a", "p", "a", price=Price(1.0, 0.1, 4.0, written=1.25))}
    assert call_prices(cards, 1000, {"fast": 600})[0]["fast"] == pytest.approx((400 * 1.25 + 60 + 1200) / 1e6)
    assert call_prices(cards, 1000)[0]["fast"] == pytest.approx((1000 + 1200) / 1e6)


def test_reasoning_is_part_of_the_usual_length_of_an_answer():
    plain = ModelCard("a", "p", "a", price=Price(1.0, 0.5, 4.0))
    cards = {"fast": plain, "slow": dataclasses.replace(plain, name="a@high", effort="high")}
    calls, _ = call_prices(cards, 1000)
    assert calls == pytest.approx({"fast": (1000 + 1200) / 1e6, "slow": (1000 + 4 * 6300) / 1e6})
    assert call_prices(cards, 1000, lengths={"slow": (0, 900)})[0]["slow"] == pytest.approx((1000 + 3600) / 1e6)


def test_lengths_come_from_the_calibration():
    source = Source("m", "0", 0.2, 0.9, 512, 0.1)
    known = Calibration({source: Statistics(0.0, 1.0, 0, prompt_tokens=700.0, output_tokens=80.0)})
    assert usual_lengths(["fast"], known, {("fast", Step.ANSWER): source}) == {"fast": (700.0, 80.0)}
    assert usual_lengths(["fast"], Calibration(), {("fast", Step.ANSWER): source}) == {}
