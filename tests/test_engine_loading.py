"""Questions that arrive before the estimator is loaded."""

from __future__ import annotations

import asyncio
import threading

import pytest

from odar.config import load_settings
from odar.engine import Odar
from odar.errors import BudgetExceeded
from odar.types import Estimate, Query
from support.scripted import ScriptedProvider, completion
from support.waiting import until


class Loading:
    """An estimator whose first estimates wait until it is loaded."""

    name = "loading"

    def __init__(self) -> None:
        self.loaded = threading.Event()
        self.waited: list[str] = []

    def estimate(self, query: Query) -> Estimate:
        if not self.loaded.is_set():
            self.waited.append(query.text)
            assert self.loaded.wait(60)
        return Estimate(0.1, self.name)


@pytest.fixture
def estimator():
    estimator = Loading()
    yield estimator
    estimator.loaded.set()


@pytest.fixture
async def odar(estimator):
    settings = load_settings(
        "tiny",
        environ={},
        providers={"p": {"kind": "openai"}},
        models={"m": {"provider": "p", "logprobs": True}},
        fast__model="m",
        slow__model="m",
    )
    provider = ScriptedProvider(lambda request, index: [completion("Answer: 4")] * request.n, "p")
    async with Odar(settings, providers={"p": provider}, estimator=estimator) as odar:
        yield odar


async def test_a_question_does_not_wait_beyond_its_deadline(odar):
    with pytest.raises(
        BudgetExceeded, match=r"deadline of 0\.1 s passed before the question was looked at; ask again"
    ):
        await odar.aask("What is 2 + 2?", deadline_s=0.1)
    assert not odar.planner.estimator.loaded


async def test_concurrent_questions_load_the_estimator_once(odar, estimator):
    asked = [asyncio.create_task(odar.aask(f"What is {n} + 2?", path="simple")) for n in range(12)]
    await until(lambda: estimator.waited)
    estimator.loaded.set()
    answers = await asyncio.gather(*asked)
    assert len(estimator.waited) == 1
    assert [answer.final for answer in answers] == ["4"] * 12
    assert odar.planner.estimator.loaded


async def test_a_timed_out_question_does_not_stop_loading(odar, estimator):
    with pytest.raises(BudgetExceeded):
        await odar.aask("What is 2 + 2?", deadline_s=0.05)
    estimator.loaded.set()
    await odar.warm_up()
    assert odar.planner.estimator.loaded
    assert (await odar.aask("What is 2 + 2?", path="simple")).final == "4"


async def test_a_loaded_estimator_is_not_waited_for(odar, estimator):
    estimator.loaded.set()
    await odar.warm_up()
    assert estimator.waited == []
    assert (await odar.aask("What is 2 + 2?", deadline_s=5)).final == "4"
