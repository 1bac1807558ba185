from __future__ import annotations

import pytest

from odar.calibration.collect import collect, record, worst_cost
from odar.calibration.items import Item
from odar.calibration.provenance import provenance
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
    odar, fast, slow = engine(fast=speak, slow=speak, fusion__stop_confidence=0.8)
    file = RecordFile(tmp_path / "r.jsonl", provenance(odar))
    seen = []
    assert await collect(odar, ITEMS, file, record, on_progress=seen.append) == []
    assert sorted(entry.id for entry in file.entries) == sorted(item.id for item in ITEMS)
    assert seen[-1].done == len(ITEMS)
    first = next(entry for entry in file.entries if entry.id == "3")
    assert (first.fast.correct, first.verify.correct, len(first.solves), first.solve_calls) == (False, True, 3, 3)
    assert first.fast.step is Step.ANSWER
    assert first.solves[0].cost_usd == pytest.approx((10 * 3 + 5 * 15) / 1e6 / 3)
    calls = len(fast.requests) + len(slow.requests)
    file.close()
    with RecordFile(tmp_path / "r.jsonl", provenance(odar)) as again:
        await collect(odar, ITEMS, again, record)
    assert len(fast.requests) + len(slow.requests) == calls  # nothing is paid twice


async def test_a_run_that_broke_off_goes_on_where_it_was(tmp_path):
    odar, _, _ = engine(fast=speak, slow=speak)
    file = RecordFile(tmp_path / "r.jsonl", provenance(odar))
    await collect(odar, ITEMS[:3], file, record)
    file.close()
    odar, fast, _ = engine(fast=speak, slow=speak)
    file.close()
    with RecordFile(tmp_path / "r.jsonl", provenance(odar)) as again:
        await collect(odar, ITEMS, again, record)
    assert sorted(asked(request) for request in fast.requests) == [3, 4, 5, 6, 7]


async def test_a_failed_item_has_no_record_and_is_tried_again(tmp_path):
    def flaky(request, index):
        return ProviderError("down", status=503) if asked(request) == 5 else speak(request, index)

    odar, _, _ = engine(fast=flaky, slow=speak)
    file = RecordFile(tmp_path / "r.jsonl", provenance(odar))
    failures = await collect(odar, ITEMS, file, record)
    assert [name for name, _ in failures] == ["5"]
    assert len(file.entries) == 7


async def test_the_budget_is_not_passed(tmp_path):
    odar, _, _ = engine(fast=speak, slow=speak)
    one = worst_cost(odar, ITEMS[:1])
    file = RecordFile(tmp_path / "r.jsonl", provenance(odar))
    failures = await collect(odar, ITEMS, file, record, concurrency=8, budget_usd=3.5 * one)
    assert len(file.entries) >= 3
    assert all(isinstance(error, BudgetExceeded) for _, error in failures)
    assert len(file.entries) + len(failures) == len(ITEMS)


def test_an_unknown_price_is_an_unknown_cost():
    models = {**MODELS, "deep": {"provider": "slow"}}
    assert worst_cost(engine(models=models)[0], ITEMS) is None
