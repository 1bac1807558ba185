from __future__ import annotations

import pytest

from odar.errors import InputError, UnknownName
from odar.traces.filter import Filter
from odar.traces.record import DIRECT, Record, Unanswered
from odar.types import Candidate, Query, Step
from support.traces import ago, make_answer, make_record


def times(index: int) -> str:
    return f"2026-11-15T10:00:0{index}.000+00:00"


@pytest.fixture
async def filled(opened, url):
    """Six traces that differ in everything that can be filtered by."""
    store = opened(url, content=True, retention_days=0)
    for record in (
        make_record(
            "What is 2 plus 2?",
            id="a1",
            path="simple",
            started_at=times(0),
            cost=0.001,
            seconds=0.1,
            difficulty=0.1,
        ),
        make_record(
            "Prove 100%_",
            id="a2",
            path="hard",
            started_at=times(1),
            cost=0.1,
            seconds=9.0,
            difficulty=0.95,
            calls=6,
        ),
        make_record(id="b1", started_at=times(2), cost=None, models=("local", "dear"), difficulty=1.0),
        make_record(id="b2", started_at=times(3), degradations=("slow agent: gone",), key_id="key_1", cost=0.01),
        make_record(id="c1", started_at=times(3), key_id="key_2", cost=0.02, seconds=2.0),
    ):
        store.put(record)
    failed = Unanswered(id="d1", started_at=times(4), profile="tiny")
    store.put(Record(Query("Who?"), failed, "key_1", error="fast: down"))
    assert await store.flush()
    return store


@pytest.mark.parametrize("cursor", ["", "x", "x_"])
async def test_an_invalid_cursor_is_rejected(filled, cursor):
    with pytest.raises(InputError, match="cursor"):
        filled.archive.page(after=cursor)


async def test_a_row_has_figures_but_no_internal_columns(filled):
    (row,) = filled.archive.page(Filter(path="hard"))["traces"]
    assert row["models"] == ["cheap", "dear"]
    assert (row["cost_usd"], row["calls"], row["tokens_in"], row["feedback"]) == (0.1, 6, 20, None)
    assert (row["query_characters"], row["started_at"][:10]) == (11, "2026-11-15")
    assert "bin" not in row
    assert "document" not in row


async def test_a_trace_is_found_by_a_prefix_of_its_id(filled):
    archive = filled.archive
    assert archive.get(archive.full_id("d"))["error"] == "fast: down"
    assert archive.get(archive.full_id("a1"))["document"]["query"]["text"] == "What is 2 plus 2?"
    with pytest.raises(UnknownName, match=r"unknown trace 'a'.*\(known: a1, a2\)"):
        archive.full_id("a")
    for nobody in ("zz", "", "%", "_1"):
        with pytest.raises(UnknownName, match="lists them"):
            archive.full_id(nobody)


async def test_an_id_that_is_a_prefix_of_others_is_found(opened, url):
    store = opened(url)
    for id_ in ("a1", "a11", "a12", "a13", "a14", "a15", "a16"):
        store.put(make_record(id=id_))
    await store.flush()
    assert store.archive.full_id("a1") == "a1"


async def test_the_server_needs_the_full_id_and_does_not_list_others(filled):
    assert (await filled.get("d1"))["id"] == "d1"
    for work in (filled.get("a"), filled.mark("a", True)):
        with pytest.raises(UnknownName) as raised:
            await work
        assert str(raised.value) == "unknown trace 'a' (its full id is needed)"


async def test_the_last_feedback_counts(filled):
    filled.archive.mark("c1", True)
    await filled.mark("c1", False, "it is 5\0\ud800")
    await filled.mark("a2", True)
    assert [t["id"] for t in filled.archive.page(Filter(feedback="wrong"))["traces"]] == ["c1"]
    assert [t["id"] for t in filled.archive.page(Filter(feedback="right"))["traces"]] == ["a2"]
    said = (await filled.get("c1"))["feedback"]
    assert (said["correct"], said["note"]) == (False, "it is 5\ufffd?")
    assert filled.archive.overview()["feedback"] == {"right": 1, "wrong": 1}


async def test_a_queued_trace_can_get_feedback(opened, url):
    store = opened(url, flush_interval_s=60)
    store.put(make_record(id="fresh"))
    await store.mark("fresh", True)
    assert (await store.get("fresh"))["feedback"]["correct"] is True
    with pytest.raises(UnknownName):
        await store.mark("stale", True)


async def test_an_export_reads_one_document_at_a_time(filled):
    texts = []
    traces = filled.archive.export(read=texts.append)
    assert next(traces)["id"] == "a1"
    assert len(texts) == 1 and '"a1"' in texts[0]


async def test_a_query_to_a_named_model_has_the_path_direct(opened, url):
    store = opened(url)
    said = Candidate(Step.ANSWER, DIRECT, "gpt", "Hello!", "Hello!")
    store.put(
        Record(
            Query("Hi"),
            Unanswered(id="x", started_at=ago(), profile="p", candidates=(said,)),
        )
    )
    row = await store.get("x")
    assert (row["path"], row["models"], row["error"]) == ("direct", ["gpt"], None)


async def test_a_chosen_path_is_not_in_the_difficulty_histogram(opened, url):
    store = opened(url)
    store.put(Record(Query("Why?"), make_answer("hard", difficulty=0.2, forced=True).trace))
    store.put(make_record(path="simple", difficulty=0.2))
    await store.flush()
    difficulty = store.archive.overview()["difficulty"]
    assert sum(difficulty["routed"]["hard"]) == 0
    assert difficulty["routed"]["simple"][20] == 1


async def test_an_answer_of_a_named_model_is_not_in_the_difficulty_histogram(opened, url):
    store = opened(url)
    answer = make_answer("direct", models=("gpt", ""))
    store.put(Record(Query("Hi"), answer.trace))
    await store.flush()
    view = store.archive.overview()
    assert list(view["paths"]) == ["direct"]
    assert view["difficulty"]["routed"] == {}
    assert store.archive.page(Filter(path="direct"))["traces"][0]["id"] == answer.trace.id


async def test_a_page_shows_the_beginning_of_a_stored_question(opened, url):
    store = opened(url, content=True)
    store.put(make_record("Why? " * 100))
    await store.flush()
    assert store.archive.page(Filter(text="why"))["traces"][0]["question"] == "Why? " * 32
    assert [t["id"] for t in store.archive.export(Filter(text="why"))] == [t["id"] for t in store.archive.export()]


async def test_the_overview_of_an_empty_or_filtered_selection(filled):
    nothing = filled.archive.overview(Filter(since="2030-01-01"))
    assert (nothing["queries"], nothing["calls_per_query"], nothing["cost_usd"], nothing["paths"]) == (
        0,
        None,
        0,
        {},
    )
    assert filled.archive.overview(Filter(key="key_1"))["queries"] == 2
    assert filled.archive.overview(Filter(text="prove"))["queries"] == 1


@pytest.mark.parametrize("moment", ["yesterday", "2026-13-01", ""])
async def test_an_invalid_time_is_rejected(filled, moment):
    with pytest.raises(InputError, match="is not ISO 8601"):
        filled.archive.page(Filter(since=moment))
