from __future__ import annotations

import pytest

from odar.calibration.collect import collect, fingerprint, worst_cost
from odar.calibration.items import Item
from odar.calibration.records import RecordFile
from odar.errors import BudgetExceeded, ProviderError
from odar.types import Query, Step
from support.scripted import completion, step_of
from test_engine import MODELS, engine

ITEMS = [Item(str(i), Query(f"What is {i} + 0?"), (str(i),)) for i in range(8)]


def asked(request):
    return int(request.messages[-1].text.split()[2])


def speak(request, index):
    """Fast is right on even numbers, slow always."""
    number = asked(request)
    if step_of(request) == "answer":
        return [completion(f"Answer: {number if number % 2 == 0 else 'no idea'}")]
    return [completion(f"Judgment: CORRECT\nAnswer: {number}")] * request.n


async def test_every_item_is_recorded_once(tmp_path):
    odar, fast, slow = engine(fast=speak, slow=speak)
    file = RecordFile(tmp_path / "r.jsonl", fingerprint(odar))
    seen = []
    assert await collect(odar, ITEMS, file, on_progress=seen.append) == []
    assert sorted(record.id for record in file.records) == sorted(item.id for item in ITEMS)
    assert seen[-1].done == len(ITEMS)
    first = next(record for record in file.records if record.id == "3")
    assert (first.fast.correct, first.verify.correct, len(first.solves)) == (False, True, 5)
    assert first.fast.step is Step.ANSWER
    assert first.solves[0].cost_usd == pytest.approx((10 * 3 + 5 * 15) / 1e6 / 5)
    calls = len(fast.requests) + len(slow.requests)
    await collect(odar, ITEMS, RecordFile(tmp_path / "r.jsonl", fingerprint(odar)))
    assert len(fast.requests) + len(slow.requests) == calls  # nothing is paid twice


async def test_a_run_that_broke_off_goes_on_where_it_was(tmp_path):
    odar, _, _ = engine(fast=speak, slow=speak)
    file = RecordFile(tmp_path / "r.jsonl", fingerprint(odar))
    await collect(odar, ITEMS[:3], file)
    odar, fast, _ = engine(fast=speak, slow=speak)
    await collect(odar, ITEMS, RecordFile(tmp_path / "r.jsonl", fingerprint(odar)))
    assert sorted(asked(request) for request in fast.requests) == [3, 4, 5, 6, 7]


async def test_a_failed_item_has_no_record_and_is_tried_again(tmp_path):
    def flaky(request, index):
        return ProviderError("down", status=503) if asked(request) == 5 else speak(request, index)

    odar, _, _ = engine(fast=flaky, slow=speak)
    file = RecordFile(tmp_path / "r.jsonl", fingerprint(odar))
    failures = await collect(odar, ITEMS, file)
    assert [name for name, _ in failures] == ["5"]
    assert len(file.records) == 7


async def test_the_budget_is_not_passed(tmp_path):
    odar, _, _ = engine(fast=speak, slow=speak)
    one = worst_cost(odar, ITEMS[:1])
    file = RecordFile(tmp_path / "r.jsonl", fingerprint(odar))
    failures = await collect(odar, ITEMS, file, concurrency=8, budget_usd=3.5 * one)
    assert len(file.records) >= 3
    assert all(isinstance(error, BudgetExceeded) for _, error in failures)
    assert len(file.records) + len(failures) == len(ITEMS)


def test_an_unknown_price_is_an_unknown_cost():
    models = {**MODELS, "deep": {"provider": "slow"}}
    assert worst_cost(engine(models=models)[0], ITEMS) is None


def test_what_records_depend_on_is_in_the_fingerprint():
    same = fingerprint(engine()[0])
    assert fingerprint(engine(routing__tau1=0.2, fusion__beta=1.0)[0]) == same
    assert fingerprint(engine(fast__temperature=0.9)[0]) != same
    assert fingerprint(engine(routing__samples=3)[0]) != same
