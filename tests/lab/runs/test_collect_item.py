"""Collecting one item: requests, kept replies, cost and failures."""

from __future__ import annotations

import asyncio
import pickle
import threading
from functools import partial

import pytest

from odar.errors import InputError, ProviderError
from odar.lab.recording.schema import item_from_json
from odar.lab.runs.collect import Job, collect_work, make_items, open_collect_work
from odar.lab.runs.journal import Memo
from odar.lab.runs.limits import REQUESTS
from odar.types import Step
from support.benchmarks import sums
from support.engine import MODELS, engine, settings
from support.scripted import ScriptedProvider, completion, step_of

ONE_BY_ONE = {**MODELS, "deep": {**MODELS["deep"], "n": False}}
FAST, SLOW = (10 * 1 + 5 * 4) / 1e6, (10 * 3 + 5 * 15) / 1e6
"""Cost of one call to each agent."""
SAMPLING = {"temperature": 0.3, "top_p": 0.9, "max_tokens": 100, "timeout_s": 60.0}


def speak(request, index):
    return [completion(f"Judgment: CORRECT\nAnswer: {int(request.messages[-1].text.split()[2])}")] * request.n


def silent_on(*steps):
    def script(request, index):
        down = ProviderError("down", status=503, may_be_billed=False)
        return down if step_of(request) in steps else speak(request, index)

    return script


async def ask(odar, memo=None, benchmark=None):
    """Return the outcome of one item and its memo."""
    source = benchmark or sums(4)
    task = list(source.load())[3]
    (item,) = make_items(odar, [Job(source, task, 2, 42)])
    memo = memo or Memo({}, lambda name, value: None)
    return await collect_work(odar)(item, memo), memo


async def test_a_row_contains_the_whole_item(tmp_path):
    odar, _, _ = engine(fast=speak, slow=speak)
    outcome, memo = await ask(odar)
    row = outcome.row
    assert (next(iter(row)), row["id"], row["error"]) == ("id", '["sums", "3", 42]', None)
    entry = item_from_json(row)
    assert (entry.key.id, entry.fold, entry.gold, entry.stratum) == ("3", 2, "3", "third")
    assert [each.step for each in entry.attempts] == [Step.ANSWER, Step.VERIFY, *[Step.SOLVE] * 5]
    assert {each.score for each in entry.attempts} == {1.0}
    assert row["cost_usd"] == pytest.approx(FAST + 2 * SLOW)
    assert list(memo.known) == ["fast:answer:0", "slow:verify:0", "slow:solve:0"]
    assert (outcome.used["fast", REQUESTS], outcome.used["slow", REQUESTS]) == (1, 2)


async def test_samples_of_separate_requests_are_kept_separately():
    odar, _, slow = engine(fast=speak, slow=speak, models=ONE_BY_ONE)
    outcome, memo = await ask(odar)
    assert sorted(memo.known) == ["fast:answer:0", *(f"slow:solve:{i}" for i in range(5)), "slow:verify:0"]
    assert outcome.used["slow", REQUESTS] == 6
    assert sorted(r.sampling.seed for r in slow.requests if step_of(r) == "solve") == [42, 43, 44, 45, 46]


async def test_difficulty_is_estimated_outside_the_event_loop(monkeypatch):
    """The estimator waits for a callback of the event loop, so it must not block the loop."""
    odar, _, _ = engine(fast=speak, slow=speak)
    loop = asyncio.get_running_loop()
    loop_went_on, estimate, seen = threading.Event(), odar.estimator.estimate, []

    class Slow:
        name = "slow"

        def estimate(self, query):
            loop.call_soon_threadsafe(loop_went_on.set)
            seen.append(loop_went_on.wait(10))
            return estimate(query)

    monkeypatch.setattr(odar, "estimator", Slow())
    outcome, _ = await ask(odar)
    assert outcome.row["error"] is None
    assert seen == [True]


@pytest.mark.parametrize("models", [MODELS, ONE_BY_ONE])
@pytest.mark.parametrize("kept", [0, 1, 2, 3])
async def test_kept_replies_are_not_requested_again_and_the_row_is_the_same(models, kept):
    odar, _, _ = engine(fast=speak, slow=speak, models=models)
    first, memo = await ask(odar)
    some = dict(list(memo.known.items())[:kept])
    odar, fast, slow = engine(fast=speak, slow=speak, models=models)
    again, _ = await ask(odar, Memo(some, lambda name, value: None))
    asked = {step_of(request) for request in (*fast.requests, *slow.requests)}
    assert asked.isdisjoint({name.split(":")[1] for name in some} - {"solve"})
    before, after = item_from_json(first.row), item_from_json(again.row)
    assert [a.answer for a in before.attempts] == [a.answer for a in after.attempts]
    times = [a.seconds for a in before.attempts][:kept] if models is ONE_BY_ONE else []
    assert times == [a.seconds for a in after.attempts][: len(times)]  # and keep the time they took
    assert again.row["cost_usd"] == pytest.approx(first.row["cost_usd"])


async def test_a_failed_row_has_the_error_and_the_cost_so_far():
    odar, _, _ = engine(fast=speak, slow=silent_on("solve"))
    outcome, memo = await ask(odar)
    assert outcome.row["error"] == {
        "type": "ProviderError", "message": "down", "provider": "", "status": 503, "retryable": False,
    }  # fmt: skip
    assert list(memo.known) == ["fast:answer:0", "slow:verify:0"]
    assert outcome.row["cost_usd"] == pytest.approx(FAST + SLOW)  # the refusal is not billed
    assert "item" not in outcome.row


async def test_a_request_that_may_be_billed_makes_the_cost_unknown():
    def lost(request, index):
        return ProviderError("no answer", may_be_billed=True)

    odar, _, _ = engine(fast=lost, slow=speak)
    outcome, _ = await ask(odar)
    assert outcome.row["cost_usd"] is None


async def test_an_empty_answer_is_a_failure_and_its_cost_counts():
    odar, _, _ = engine(fast=lambda request, index: [completion("")], slow=speak)
    outcome, memo = await ask(odar)
    assert "empty or endless answer" in outcome.row["error"]["message"]
    assert (memo.known, outcome.row["cost_usd"]) == ({}, pytest.approx(FAST))


async def test_graders_run_one_at_a_time_outside_the_event_loop():
    """Every score waits for a callback of the event loop, so it must not block the loop."""
    loop, running, most = asyncio.get_running_loop(), 0, 0

    def score(task, response, answer):
        nonlocal running, most
        running += 1
        most = max(most, running)
        loop_went_on = threading.Event()
        loop.call_soon_threadsafe(loop_went_on.set)
        assert loop_went_on.wait(10)
        running -= 1
        return 1.0

    odar, _, _ = engine(fast=speak, slow=speak)
    slow_to_score = sums(4, score=score)
    work = collect_work(odar)
    items = make_items(odar, [Job(slow_to_score, task, 0, 42) for task in slow_to_score.load()])
    outcomes = await asyncio.gather(*(work(item, Memo({}, lambda name, value: None)) for item in items))
    assert [outcome.row["error"] for outcome in outcomes] == [None] * 4
    assert most == 1


async def test_a_failing_grader_keeps_the_paid_answers_and_their_cost():
    def score(task, response, answer):
        raise InputError("no harness")

    odar, _, _ = engine(fast=speak, slow=speak)
    outcome, memo = await ask(odar, benchmark=sums(4, score=score))
    assert (outcome.row["error"]["type"], len(memo.known)) == ("InputError", 3)
    assert outcome.row["cost_usd"] == pytest.approx(FAST + 2 * SLOW)


async def test_every_configured_agent_is_asked(tmp_path):
    other = {"provider": "fast", "n": False}
    agents = {"second__model": "other", "agents": {"expert": {"model": "deep", **SAMPLING}}}
    odar, fast, slow = engine(fast=speak, slow=speak, models={**MODELS, "other": other}, **agents)
    outcome, _ = await ask(odar)
    entry = item_from_json(outcome.row)
    assert [(each.agent, each.step.value, each.index) for each in entry.attempts] == [
        ("fast", "answer", 0), ("second", "answer", 0), ("slow", "verify", 0),
        *(("slow", "solve", k) for k in range(5)), ("expert", "solve", 0),
    ]  # fmt: skip
    assert [each.request for each in entry.attempts] == [0, 1, 2, *[3] * 5, 8]
    assert [request.model for request in fast.requests] == ["quick", "other"]
    assert len(slow.requests) == 3


async def test_the_engine_is_closed_after_an_error():
    opened = {name: ScriptedProvider(speak, name) for name in ("fast", "slow")}
    with pytest.raises(InputError):
        async with partial(open_collect_work, settings(), lambda _: opened)():
            raise InputError("stop")
    assert all(provider.closed for provider in opened.values())


def test_work_can_be_pickled():
    work = partial(open_collect_work, settings())
    assert pickle.loads(pickle.dumps(work)).args == work.args
