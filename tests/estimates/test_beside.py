"""Estimates in a process beside: the same to the last digit, whatever happens to the process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from odar.conversation import Message
from odar.difficulty.base import open_estimator
from odar.difficulty.estimator import LearnedEstimator, shipped_estimator
from odar.difficulty.features import FeatureExtractor
from odar.difficulty.sticky import estimate_turn
from odar.estimates import beside as module
from odar.estimates.beside import Beside, beside
from odar.estimates.here import Here
from odar.types import Query

QUERIES = [
    Query("Is Paris the capital of France?"),
    Query("Prove that there are infinitely many primes.\nThen say why it matters."),
    Query("北京 is 首都?"),
    Query("a\ud800b"),
    Query("x " * 20_000),
]


@pytest.fixture
async def estimates() -> AsyncIterator[Beside]:
    found = Beside(shipped_estimator())
    yield found
    await found.close()


def pid(estimates: Beside) -> int:
    assert estimates._link is not None
    return estimates._link.result()._process.get_pid()


async def gone(process: int) -> None:
    for _ in range(200):
        try:
            if " Z " in Path(f"/proc/{process}/stat").read_text("ascii"):
                return
        except (FileNotFoundError, ProcessLookupError):  # it may go between any two looks, and while it is read
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"process {process} lives on")


async def test_estimates_are_those_of_this_process(estimates: Beside) -> None:
    found = await asyncio.gather(*map(estimates, QUERIES))
    assert found == [estimate_turn(shipped_estimator(), query) for query in QUERIES]


async def test_a_conversation_crosses_too(estimates: Beside) -> None:
    turns = [Message("user", "Prove Fermat's last theorem for n = 4, rigorously."), Message("assistant", "Done.")]
    query = Query.of((*turns, Message("user", "Shorter.")))
    assert await estimates(query) == estimate_turn(shipped_estimator(), query)


async def test_who_leaves_does_not_take_the_next_ones_answer(estimates: Beside) -> None:
    await estimates(QUERIES[0])
    leaving = asyncio.create_task(estimates(QUERIES[1]))
    staying = asyncio.create_task(estimates(QUERIES[2]))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying == estimate_turn(shipped_estimator(), QUERIES[2])


async def test_who_leaves_while_it_starts_does_not_stop_the_start(estimates: Beside) -> None:
    leaving = asyncio.create_task(estimates(QUERIES[0]))
    await asyncio.sleep(0)
    staying = asyncio.create_task(estimates(QUERIES[0]))
    await asyncio.sleep(0)
    leaving.cancel()
    assert (await staying).estimator == "learned/2"


async def test_a_killed_process_costs_no_estimate_and_is_replaced(
    estimates: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESTART_S", 0.2)
    right = estimate_turn(shipped_estimator(), QUERIES[1])
    assert await estimates(QUERIES[1]) == right
    first = pid(estimates)
    assert estimates._link is not None
    lost = estimates._link.result()
    os.kill(first, signal.SIGSTOP)
    waiting = [asyncio.create_task(estimates(QUERIES[1])) for _ in range(5)]
    await asyncio.sleep(0.1)
    os.kill(first, signal.SIGKILL)
    assert await asyncio.gather(*waiting) == [right] * 5
    assert await estimates(QUERIES[1]) == right
    await asyncio.sleep(0.3)
    assert await estimates(QUERIES[1]) == right
    assert pid(estimates) != first
    await lost._ended.wait()  # seen by this loop: a process that ends unseen is one that Python warns of
    await gone(first)


@pytest.mark.parametrize(
    "command", [("/nowhere/python",), (sys.executable, "-c", "raise SystemExit(3)")], ids=["absent", "fails"]
)
async def test_one_that_cannot_start_is_not_tried_for_every_request(command: tuple[str, ...]) -> None:
    estimates, started = Beside(shipped_estimator(), command), 0
    start = module._start

    async def counted(command: Any) -> Any:
        nonlocal started
        started += 1
        return await start(command)

    module._start = counted  # type: ignore[assignment]
    try:
        for _ in range(4):
            assert (await estimates(QUERIES[0])).difficulty < 0.3
    finally:
        module._start = start
    assert started == 1
    await estimates.close()


async def test_one_that_hangs_is_ended_and_costs_no_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.5)
    command = (sys.executable, "-c", "import time; time.sleep(60)")
    hanging = Beside(shipped_estimator(), command)
    right = estimate_turn(shipped_estimator(), QUERIES[1])
    assert await asyncio.gather(*(hanging(QUERIES[1]) for _ in range(3))) == [right] * 3
    await hanging.close()


async def test_closing_ends_the_process(estimates: Beside) -> None:
    await estimates(QUERIES[0])
    process = pid(estimates)
    await estimates.close()
    await gone(process)


async def test_closing_ends_a_process_that_has_only_just_been_started() -> None:
    estimates = Beside(shipped_estimator())
    asking = asyncio.create_task(estimates(QUERIES[0]))
    await asyncio.sleep(0)
    asking.cancel()
    await estimates.close()
    await gone(pid(estimates))


def test_an_answer_that_comes_while_it_is_closed_is_nobodys() -> None:
    """Found by `make chaos`: the pipe of questions was gone, an answer came on the other, and nobody waited for it."""
    faults: list[dict[str, Any]] = []

    async def ask_and_close() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        estimates = Beside(shipped_estimator())
        await estimates(QUERIES[0])
        assert estimates._link is not None
        asking = [estimates._link.result().ask(query) for query in QUERIES[:2] * 20]
        await estimates.close()
        assert all(each.done() for each in asking)
        for each in asking:
            each.exception()  # lost, or answered in time

    for run in (uvloop.run, asyncio.run):
        run(ask_and_close())
    assert faults == []


async def test_one_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FAREWELL_S", 0.2)
    estimates = Beside(shipped_estimator())
    await estimates(QUERIES[0])
    process = pid(estimates)
    os.kill(process, signal.SIGSTOP)
    await estimates.close()
    await gone(process)


async def test_it_gets_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    estimates = Beside(shipped_estimator())
    await estimates(QUERIES[0])
    assert b"sk-secret" not in Path(f"/proc/{pid(estimates)}/environ").read_bytes()
    await estimates.close()


def test_only_the_learned_estimator_is_worth_a_process() -> None:
    assert isinstance(beside(open_estimator("learned")), Beside)
    assert isinstance(beside(open_estimator("length")), Here)
    own = LearnedEstimator.load()
    own.extractor = FeatureExtractor()
    assert isinstance(beside(own), Here)


def test_a_pipe_that_broke_before_it_said_so_costs_no_estimate() -> None:
    """Found by `make chaos`: uvloop raises in `write` there, which was an internal error for whoever asked."""
    right = estimate_turn(shipped_estimator(), QUERIES[0])

    async def ask() -> None:
        estimates = Beside(shipped_estimator())
        assert await estimates(QUERIES[0]) == right
        assert estimates._link is not None
        link = estimates._link.result()
        link._questions.abort()
        assert not link.lost, "nobody was told yet"
        assert await asyncio.gather(*(estimates(QUERIES[0]) for _ in range(3))) == [right] * 3
        await estimates.close()

    uvloop.run(ask())
