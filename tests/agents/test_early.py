from __future__ import annotations

import asyncio
import dataclasses

import pytest

from odar.conversation import ChatParameters, Image
from odar.difficulty.base import ConstantEstimator
from odar.engine import Odar
from odar.errors import BudgetExceeded, InputError, OdarError
from odar.options import AskOptions
from odar.types import Estimate, Query, Route
from support.engine import MODELS, settings, steps, talk
from support.scripted import ScriptedProvider

QUESTION = "What is 2 + 2?"


class Slow:
    """Estimates that wait until `may` is set."""

    def __init__(self, difficulty: float) -> None:
        self.may = asyncio.Event()
        self.difficulty = difficulty
        self.error: Exception | None = None

    def is_instant(self, query: Query) -> bool:
        return False

    async def estimate(self, query: Query) -> Estimate:
        await self.may.wait()
        if self.error is not None:
            raise self.error
        return Estimate(self.difficulty, "slow")

    def close(self) -> None:
        pass


def engine(difficulty: float = 0.1, *, warm: bool = True, models=MODELS, **overrides):
    fast, slow = ScriptedProvider(talk, "fast"), ScriptedProvider(talk, "slow")
    estimates = Slow(difficulty)
    odar = Odar(
        settings(models=models, **overrides),
        providers={"fast": fast, "slow": slow},
        estimator=ConstantEstimator(difficulty),
    )
    odar.planner.estimator = estimates
    estimates.loaded = warm
    return odar, fast, slow, estimates


async def asked_before_the_estimate(odar, fast, estimates, question=QUESTION, **options):
    """Return how many calls the fast agent got before the difficulty was known, and the answer."""
    work = asyncio.create_task(odar.aask(question, **options))
    for _ in range(20):
        await asyncio.sleep(0)
    early = len(fast.requests)
    estimates.may.set()
    return early, await work


@pytest.mark.parametrize(("difficulty", "path"), [(0.1, Route.SIMPLE), (0.5, Route.MEDIUM), (0.9, Route.HARD)])
async def test_the_fast_agent_is_called_once_before_the_estimate_is_known(difficulty, path):
    odar, fast, _, estimates = engine(difficulty)
    early, answer = await asked_before_the_estimate(odar, fast, estimates)
    assert (early, answer.path, steps(fast)) == (1, path, ["answer"])
    assert answer.trace.spend.calls == {Route.SIMPLE: 1, Route.MEDIUM: 2, Route.HARD: 6}[path]


@pytest.mark.parametrize("difficulty", [0.1, 0.5, 0.9])
async def test_calling_the_fast_agent_early_does_not_change_the_answer(difficulty):
    answers = []
    for warm in (True, False):
        odar, fast, slow, estimates = engine(difficulty, warm=warm)
        early, answer = await asked_before_the_estimate(odar, fast, estimates, seed=7)
        assert early == warm
        calls = [(call.step, call.samples, call.usage, call.cost_usd, call.error) for call in answer.trace.calls]
        requests = [dataclasses.replace(each, timeout_s=1.0) for each in fast.requests + slow.requests]
        answers.append((answer.final, answer.text, answer.trace.candidates, answer.trace.verdict, calls, requests))
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    "options",
    [
        {"options": AskOptions(on_delta=lambda delta: None)},
        {"question": Query(QUESTION, parameters=ChatParameters(n=2))},
    ],
    ids=["stream", "several answers"],
)
async def test_no_early_call_if_the_request_depends_on_the_path(options):
    odar, fast, _, estimates = engine()
    early, _ = await asked_before_the_estimate(odar, fast, estimates, **options)
    assert early == 0
    assert set(steps(fast)) == {"answer"}


async def test_an_image_without_a_suitable_agent_is_rejected_before_any_call():
    picture = Query(QUESTION, (Image("image/png", b"x"),))
    odar, fast, _, estimates = engine(0.5)
    estimates.may.set()
    with pytest.raises(InputError, match="cannot see images"):
        await odar.aask(picture)
    assert fast.requests == []
    seeing = {**MODELS, "quick": {**MODELS["quick"], "images": True}}
    odar, fast, _, estimates = engine(0.1, models=seeing)
    early, answer = await asked_before_the_estimate(odar, fast, estimates, picture)
    assert (early, answer.final) == (1, "4"), "the only agent that sees it"


async def test_a_named_model_is_called_before_the_estimate_is_known():
    odar, fast, slow, estimates = engine(0.9)
    early, answer = await asked_before_the_estimate(odar, slow, estimates, options=AskOptions(model="deep"))
    assert (early, fast.requests, answer.trace.spend.calls) == (1, [], 1)


@pytest.mark.parametrize(
    "error", [BudgetExceeded("too late"), RuntimeError("no luck")], ids=["expected", "unexpected"]
)
async def test_a_failed_estimate_cancels_and_records_the_early_call(error):
    odar, fast, _, estimates = engine()
    fast.delay_s, estimates.error = 30.0, error
    ledger = odar.agents.ledger()
    work = asyncio.create_task(odar.aask(QUESTION, options=AskOptions(ledger=ledger)))
    while not fast.in_flight:
        await asyncio.sleep(0)
    estimates.may.set()
    with pytest.raises(type(error)) as raised:
        await work
    assert fast.in_flight == 0
    assert [(call.error, call.cost_usd) for call in ledger.calls] == [("cancelled", None)]
    if isinstance(raised.value, OdarError):
        assert raised.value.spend == dataclasses.replace(ledger.spend(), seconds=raised.value.spend.seconds)


async def test_cancelling_a_question_cancels_its_early_call():
    odar, fast, _, _ = engine()
    fast.delay_s = 30.0
    work = asyncio.create_task(odar.aask(QUESTION))
    while not fast.in_flight:
        await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert fast.in_flight == 0


async def test_an_exception_in_on_decision_cancels_the_early_call():
    odar, fast, _, estimates = engine()
    fast.delay_s = 30.0
    estimates.may.set()

    def refuse(decision, plan):
        raise PermissionError("not this path")

    with pytest.raises(PermissionError):
        await odar.aask(QUESTION, options=AskOptions(on_decision=refuse))
    assert fast.in_flight == 0
