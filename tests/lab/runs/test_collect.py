from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from odar.errors import BudgetExceeded, InputError, ProviderError
from odar.lab.recording.files import open_recording
from odar.lab.recording.header import header_of
from odar.lab.runs.collect import Job, make_items
from odar.lab.runs.executor import Progress, run
from odar.lab.runs.journal import Journal
from odar.lab.selection import select_tasks
from odar.types import Step
from support.benchmarks import sums
from support.engine import MODELS, engine
from support.panels import opened
from support.scripted import even_fast, step_of

NAME = "recording.jsonl"
ONE_BY_ONE = {**MODELS, "deep": {**MODELS["deep"], "n": False}}


def jobs(size=8, seeds=(42,)):
    source = sums(size)
    drawn = select_tasks(list(source.load()))
    return [Job(source, t, f, seed) for seed in seeds for t, f in drawn]


class Collected(NamedTuple):
    progress: Progress
    errors: list[dict[str, Any]]


async def collect(odar, folder, todo, **options):
    with Journal(folder / NAME, header_of(odar).to_row()) as journal:
        items = make_items(odar, todo)
        done = await run(items, opened(odar), journal, **{"concurrency": 4, **options})
        errors = [json.loads(line)["error"] for line in journal.lines(journal.entries)]
        return Collected(done, [error for error in errors if error is not None])


def collected(folder):
    return {each.key: each for each in open_recording(folder / NAME).items()}


async def test_every_item_is_kept_with_all_its_answers(tmp_path):
    odar, fast, slow = engine(fast=even_fast, slow=even_fast, difficulty=0.4)
    seen = []
    assert (await collect(odar, tmp_path, jobs(seeds=(42, 123)), on_progress=seen.append)).errors == []
    found = collected(tmp_path)
    assert len(found) == 16
    three = found["sums", "3", 123]
    assert [each.step for each in three.attempts] == [Step.ANSWER, Step.VERIFY, *[Step.SOLVE] * 5]
    assert [each.score for each in three.attempts] == [0, *[1] * 6]
    assert (three.attempts[1].judgment, three.difficulty, three.expert) == (True, 0.4, "math")
    assert (three.gold, three.effort, len(three.features), three.stratum) == ("3", 3.0, 24, "third")
    assert {each.fold for each in found.values()} == set(range(5))
    assert {request.sampling.seed for request in fast.requests} == {42, 123}
    assert (seen[-1].done, seen[-1].total, seen[-1].cost_to_go_usd) == (16, 16, 0)
    bill = 16 * ((10 * 1 + 5 * 4) + 2 * (10 * 3 + 5 * 15)) / 1e6
    assert seen[-1].cost_usd == pytest.approx(bill)
    asked_for = len(fast.requests) + len(slow.requests)
    again = await collect(odar, tmp_path, jobs(seeds=(42, 123)))
    assert len(fast.requests) + len(slow.requests) == asked_for
    assert again.progress.cost_usd == pytest.approx(bill)


@pytest.mark.parametrize("models", [MODELS, ONE_BY_ONE])
async def test_a_second_run_repeats_only_failed_steps(tmp_path, models):
    def flaky(request, index):
        return ProviderError("down", status=503) if step_of(request) == "solve" else even_fast(request, index)

    odar, _, _ = engine(fast=even_fast, slow=flaky, models=models)
    first = await collect(odar, tmp_path, jobs(3))
    assert [error["message"] for error in first.errors] == ["down"] * 3
    assert collected(tmp_path) == {}
    odar, fast, slow = engine(fast=even_fast, slow=even_fast, models=models)
    await collect(odar, tmp_path, jobs(3))
    assert fast.requests == []
    assert {step_of(request) for request in slow.requests} == {"solve"}
    assert len(collected(tmp_path)) == 3


async def test_a_second_run_repeats_only_failed_samples(tmp_path):
    def third_is_down(request, index):
        down = step_of(request) == "solve" and request.sampling.seed == 42 + 2
        return ProviderError("down", status=503) if down else even_fast(request, index)

    odar, _, _ = engine(fast=even_fast, slow=third_is_down, models=ONE_BY_ONE)
    await collect(odar, tmp_path, jobs(1))
    odar, _, slow = engine(fast=even_fast, slow=even_fast, models=ONE_BY_ONE)
    await collect(odar, tmp_path, jobs(1))
    assert [request.sampling.seed for request in slow.requests] == [44]
    (one,) = collected(tmp_path).values()
    assert [each.index for each in one.attempts[2:]] == [0, 1, 2, 3, 4]
    assert len({each.request for each in one.attempts}) == 7


async def test_the_budget_includes_earlier_runs_and_is_not_exceeded(tmp_path):
    odar, _, _ = engine(fast=even_fast, slow=even_fast)
    worst = make_items(odar, jobs(1))[0].worst_cost_usd
    each = ((10 * 1 + 5 * 4) + 2 * (10 * 3 + 5 * 15)) / 1e6
    first = await collect(odar, tmp_path, jobs(), concurrency=8, budget_usd=worst + 2.5 * each)
    assert len(collected(tmp_path)) == 3  # before a fourth, more than the rest might have been spent
    assert "the budget of $" in first.progress.stopped
    for budget, items in ((worst + 2.5 * each, 3), (worst + 4.5 * each, 5)):
        last = await collect(odar, tmp_path, jobs(), budget_usd=budget)
        assert len(collected(tmp_path)) == items
        assert last.progress.cost_usd == pytest.approx(items * each)


async def test_a_budget_needs_prices(tmp_path):
    unpriced = {name: value for name, value in MODELS["deep"].items() if name != "price"}
    odar, fast, _ = engine(fast=even_fast, slow=even_fast, models={**MODELS, "deep": unpriced})
    with pytest.raises(BudgetExceeded, match="price is unknown"):
        await collect(odar, tmp_path, jobs(2), budget_usd=1.0)
    assert fast.requests == []
    await collect(odar, tmp_path, jobs(2))
    assert collected(tmp_path)["sums", "1", 42].attempts[1].output_usd is None
    priced, fast, _ = engine(fast=even_fast, slow=even_fast)
    with pytest.raises(BudgetExceeded, match="the cost of earlier runs is unknown"):
        await collect(priced, tmp_path, jobs(3)[2:], budget_usd=1.0)
    assert fast.requests == []


async def test_a_second_run_scores_without_new_requests_after_a_grader_failed(tmp_path):
    def score(task, response, answer):
        raise InputError("the harness is not installed")

    odar, fast, slow = engine(fast=even_fast, slow=even_fast)
    broken = [Job(sums(2, score=score), job.task, job.fold, job.seed) for job in jobs(2)]
    first = await collect(odar, tmp_path, broken)
    assert [error["message"] for error in first.errors] == ["the harness is not installed"] * 2
    paid = len(fast.requests) + len(slow.requests)
    await collect(odar, tmp_path, jobs(2))
    assert len(fast.requests) + len(slow.requests) == paid
    assert [each.score for each in collected(tmp_path)["sums", "1", 42].attempts] == [0, *[1] * 6]
