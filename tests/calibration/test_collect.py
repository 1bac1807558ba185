from __future__ import annotations

import json
from functools import partial

import pytest

from odar.calibration.collect import record, recording, work_items
from odar.calibration.items import Item
from odar.calibration.provenance import provenance
from odar.calibration.records import FORMAT, record_of
from odar.errors import InputError, ProviderError
from odar.recording.executor import LocalExecutor, run
from odar.recording.journal import Journal
from odar.recording.work import WithEngine
from odar.types import Query, Step
from support.panels import opened
from support.scripted import asked, even_fast, step_of
from test_engine import MODELS, engine

ITEMS = [Item(str(i), Query(f"What is {i} + 0?"), (str(i),)) for i in range(8)]
STEPS = ((Step.ANSWER, 1), (Step.VERIFY, 1), (Step.SOLVE, 5))


async def collect(odar, path, items=ITEMS, **options):
    """What came of a run, and the records in the file."""
    work = opened(odar, partial(recording, record))
    with Journal(path, provenance(odar).header(FORMAT)) as journal:
        done = await run(work_items(odar, items, STEPS), lambda: LocalExecutor(work), journal, **options)
        return done, {row["id"]: record_of(row) for row in journal.rows()}


async def test_every_item_is_recorded_once(tmp_path):
    odar, fast, slow = engine(fast=even_fast, slow=even_fast, fusion__stop_confidence=0.8)
    seen = []
    done, found = await collect(odar, tmp_path / "r.jsonl", on_progress=seen.append)
    assert (done.failed, seen[-1].done) == (0, len(ITEMS))
    assert list(found) == [item.id for item in ITEMS]
    third = found["3"]
    assert (third.fast.correct, third.verify.correct, len(third.solves), third.solve_calls) == (False, True, 3, 3)
    assert third.fast.step is Step.ANSWER
    assert third.solves[0].cost_usd == pytest.approx((10 * 3 + 5 * 15) / 1e6 / 3)
    calls = len(fast.requests) + len(slow.requests)
    await collect(odar, tmp_path / "r.jsonl")
    assert len(fast.requests) + len(slow.requests) == calls  # nothing is paid twice


async def test_a_run_that_broke_off_goes_on_where_it_was(tmp_path):
    odar, _, _ = engine(fast=even_fast, slow=even_fast)
    await collect(odar, tmp_path / "r.jsonl", ITEMS[:3])
    odar, fast, _ = engine(fast=even_fast, slow=even_fast)
    await collect(odar, tmp_path / "r.jsonl")
    assert sorted(asked(request) for request in fast.requests) == [3, 4, 5, 6, 7]


async def test_a_failed_item_has_no_record_and_is_tried_again(tmp_path):
    def flaky(request, index):
        return ProviderError("down", status=503) if asked(request) == 5 else even_fast(request, index)

    odar, _, _ = engine(fast=flaky, slow=even_fast)
    done, found = await collect(odar, tmp_path / "r.jsonl")
    assert (done.failed, "5" in found, len(found)) == (1, False, 7)
    odar, fast, _ = engine(fast=even_fast, slow=even_fast)
    done, found = await collect(odar, tmp_path / "r.jsonl")
    assert (done.failed, len(found), [asked(request) for request in fast.requests]) == (0, 8, [5])


async def test_replies_of_an_item_that_failed_half_way_are_not_asked_for_again(tmp_path):
    def no_samples(request, index):
        return ProviderError("down", status=503) if step_of(request) == "solve" else even_fast(request, index)

    async def attempt(slow_script):
        odar, fast, slow = engine(fast=even_fast, slow=slow_script)
        providers = {"fast": fast, "slow": slow}
        work = WithEngine(odar.settings, partial(recording, record), lambda settings: providers)
        with Journal(tmp_path / "r.jsonl", provenance(odar).header(FORMAT)) as journal:
            items = work_items(odar, ITEMS[:2], STEPS)
            done = await run(items, lambda: LocalExecutor(work), journal)
            rows = list(journal.rows())
        return done, rows, [step_of(request) for request in (*fast.requests, *slow.requests)]

    done, rows, steps = await attempt(no_samples)
    assert (done.failed, rows, sorted(set(steps))) == (2, [], ["answer", "solve", "verify"])
    done, rows, steps = await attempt(even_fast)
    assert (done.failed, len(rows), set(steps)) == (0, 2, {"solve"})
    each = ((10 * 1 + 5 * 4) + 2 * (10 * 3 + 5 * 15)) / 1e6
    assert [row["cost_usd"] for row in rows] == [pytest.approx(each)] * 2  # what was paid earlier is in it


async def test_the_budget_is_not_passed(tmp_path):
    odar, _, _ = engine(fast=even_fast, slow=even_fast)
    one, each = work_items(odar, ITEMS[:1], STEPS)[0].worst_cost_usd, 0.00024
    done, found = await collect(odar, tmp_path / "r.jsonl", concurrency=8, budget_usd=one + 2.5 * each)
    assert len(found) == 3
    assert "the budget of $" in done.stopped


async def test_records_of_before_rows_had_digests_still_count(tmp_path):
    path = tmp_path / "r.jsonl"
    odar, _, _ = engine(fast=even_fast, slow=even_fast)
    _, found = await collect(odar, path)
    later = ("cost_usd", "error", "digest")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    older = [{name: value for name, value in row.items() if name not in later} for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in older))
    odar, fast, _ = engine(fast=even_fast, slow=even_fast)
    _, again = await collect(odar, path)
    assert again == found
    assert fast.requests == []


async def test_another_question_under_the_same_id_is_refused(tmp_path):
    odar, _, _ = engine(fast=even_fast, slow=even_fast)
    await collect(odar, tmp_path / "r.jsonl", ITEMS[:2])
    changed = [Item("1", Query("What is 7 + 0?"), ("7",))]
    with pytest.raises(InputError, match="row '1' that was made from another question"):
        await collect(odar, tmp_path / "r.jsonl", changed)


def test_an_unknown_price_is_an_unknown_cost():
    models = {**MODELS, "deep": {"provider": "slow"}}
    assert {item.worst_cost_usd for item in work_items(engine(models=models)[0], ITEMS, STEPS)} == {None}


async def test_what_changed_since_the_file_was_made_is_named(tmp_path):
    odar, _, _ = engine(fast=even_fast, slow=even_fast)
    await collect(odar, tmp_path / "r.jsonl", ITEMS[:1])
    made_by = provenance(engine(fast__temperature=0.9)[0])
    with (
        pytest.raises(
            InputError, match=r"other models, prompts or settings \(fast.temperature was 0.2 and is 0.9\)"
        ),
        Journal(tmp_path / "r.jsonl", made_by.header(FORMAT), made_by.since),
    ):
        pass


async def test_a_file_of_before_headers_held_facts_still_counts(tmp_path):
    path = tmp_path / "r.jsonl"
    odar, _, _ = engine(fast=even_fast, slow=even_fast)
    await collect(odar, path)
    header, *rows = path.read_text().splitlines()
    bare = {name: value for name, value in json.loads(header).items() if name != "facts"}
    path.write_text("\n".join([json.dumps(bare), *rows, ""]))
    odar, fast, _ = engine(fast=even_fast, slow=even_fast)
    _, found = await collect(odar, path)
    assert (len(found), fast.requests) == (8, [])
