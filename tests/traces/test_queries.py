"""Queries and sums of the databases, compared with the same computed in Python."""

from __future__ import annotations

import random
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odar.config import load_settings
from odar.traces.archive import Archive
from odar.traces.database import Database
from odar.traces.filter import Filter
from odar.traces.record import Record, Unanswered
from odar.traces.writer import make_row, write_rows
from odar.types import Query
from support.traces import make_answer

COUNT = 150
PATHS = ("simple", "medium", "hard")
MODELS = ("cheap", "dear", "de%r", "a_b")
KEYS = (None, "key_1", "key_2")
WORDS = ("Paris", "100%", "a_b", "straße", "")
START = datetime(2026, 11, 10, tzinfo=UTC)


def population(seed: int) -> list[tuple[Record, bool | None]]:
    """Return records of every kind, some with equal times, each with its feedback."""
    draw = random.Random(seed)
    made: list[tuple[Record, bool | None]] = []
    for index in range(COUNT):
        moment = (START + timedelta(minutes=draw.randrange(0, 9000, 30))).isoformat(timespec="milliseconds")
        name, key = f"{draw.choice('ab')}{index:03}", draw.choice(KEYS)
        if draw.random() < 0.1:
            attempt = Unanswered(id=name, started_at=moment, profile="tiny")
            made.append((Record(Query("Who?"), attempt, key, error="fast: down"), None))
            continue
        answer = make_answer(
            draw.choice(PATHS),
            id=name,
            started_at=moment,
            text=f"It is {draw.choice(WORDS)}.",
            difficulty=draw.randrange(0, 101) / 100,
            models=(draw.choice(MODELS), draw.choice(MODELS)),
            cost=draw.choice((None, 0.0, 0.001, 0.02)),
            seconds=draw.randrange(1, 400) / 100,
            calls=draw.randrange(1, 7),
            degradations=("slow agent: gone",) if draw.random() < 0.2 else (),
        )
        query = Query(f"What of {draw.choice(WORDS)}?")
        made.append((Record(query, answer.trace, key), draw.choice((None, None, True, False))))
    return made


@pytest.fixture(scope="module")
def records() -> list[tuple[Record, bool | None]]:
    return population(20261116)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def archive(request, tmp_path_factory, records) -> Iterator[Archive]:
    """A database of each kind with all records."""
    if request.param == "sqlite":
        url = str(tmp_path_factory.mktemp("queries") / "odar.db")
    else:
        import psycopg

        server, schema = request.getfixturevalue("postgres_server"), f"odar_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {schema}")
        url = f"{server}&options=-csearch_path%3D{schema}"
    database = Database(load_settings("tiny", config="/dev/null", environ={}, store={"url": url}).store)
    with database.write() as connection:
        write_rows(connection, [make_row(record, content=True) for record, _ in records])
    archive = Archive(database)
    for record, mark in records:
        if mark is not None:
            archive.mark(record.trace.id, mark, "noted")
    yield archive
    database.close()


class Rows(list[dict[str, Any]]):
    """Rows with a short repr, because hypothesis prints every example."""

    def __repr__(self) -> str:
        return f"{len(self)} rows"


@pytest.fixture(scope="module")
def rows(archive, records) -> Rows:
    """Return all rows of the archive, newest first; the expected results are computed from them."""
    found = {row["id"]: row for row in archive.export()}
    assert set(found) == {record.trace.id for record, _ in records}
    return Rows(sorted(found.values(), key=lambda row: (row["started_at"], row["id"]), reverse=True))


def matches(row: dict[str, Any], wanted: Filter) -> bool:
    """Apply the filter in Python."""
    said = row["feedback"]
    texts = [row["document"]["query"]["text"], row["document"]["answer"] and row["document"]["answer"]["text"]]
    same = {"path": row["path"], "status": row["status"], "key": row["key_id"], "degraded": row["degraded"]}
    tests = [
        *(getattr(wanted, name) in (None, value) for name, value in same.items()),
        wanted.model is None or wanted.model in row["models"],
        wanted.id is None or row["id"].startswith(wanted.id),
        wanted.since is None or row["started_at"] >= wanted.since,
        wanted.until is None or row["started_at"] < wanted.until,
        between(row["cost_usd"], wanted.min_cost, wanted.max_cost),
        between(row["difficulty"], wanted.min_difficulty, wanted.max_difficulty),
        wanted.feedback is None or wanted.feedback == (opinion(said)),
        wanted.text is None or any(wanted.text.casefold() in text.casefold() for text in texts if text),
    ]
    return all(tests)


def between(value: float | None, least: float | None, most: float | None) -> bool:
    if value is None:
        return least is None and most is None
    return (least is None or value >= least) and (most is None or value <= most)


def opinion(said: dict[str, Any] | None) -> str:
    return "none" if said is None else "right" if said["correct"] else "wrong"


def maybe(*values: Any) -> st.SearchStrategy[Any]:
    """Return a strategy that is mostly None, so that some traces match."""
    return st.one_of(st.none(), st.none(), st.sampled_from(values))


moments = st.integers(0, 160).map(lambda hours: (START + timedelta(hours=hours)).isoformat(timespec="milliseconds"))
FIELDS = {
    "since": st.one_of(st.none(), st.none(), moments),
    "until": st.one_of(st.none(), st.none(), moments),
    "path": maybe(*PATHS, "direct"),
    "status": maybe("ok", "error"),
    "degraded": maybe(True, False),
    "model": maybe(*MODELS, "%", "d"),
    "key": maybe("key_1", "key_2", "key_"),
    "min_cost": maybe(0.0, 0.001, 0.01),
    "max_cost": maybe(0.0, 0.001, 0.01),
    "min_difficulty": maybe(0.0, 0.31, 0.7),
    "max_difficulty": maybe(0.3, 0.69, 1.0),
    "id": maybe("a", "b", "a0", "b01", "c", "%"),
    "feedback": maybe("right", "wrong", "none"),
    "text": maybe("paris", "PARIS", "100%", "a_b", "what of", "_", "nowhere"),
}
filters = st.builds(Filter, **FIELDS)


@settings(max_examples=40, deadline=None)
@given(filters)
def test_a_filter_finds_all_matching_rows_in_order(archive, rows, wanted):
    found = [row["id"] for row in archive.page(wanted, limit=COUNT)["traces"]]
    assert found == [row["id"] for row in rows if matches(row, wanted)]


@settings(max_examples=15, deadline=None)
@given(filters, st.integers(1, 70))
def test_pages_together_are_the_whole_list(archive, rows, wanted, limit):
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = archive.page(wanted, cursor, limit)
        found += [row["id"] for row in page["traces"]]
        assert len(page["traces"]) <= limit
        if page["next"] is None:
            break
        assert len(page["traces"]) == limit
        cursor = page["next"]
    assert found == [row["id"] for row in rows if matches(row, wanted)]


@settings(max_examples=10, deadline=None)
@given(filters)
def test_an_export_is_oldest_first(archive, rows, wanted):
    oldest_first = [row["id"] for row in reversed(rows) if matches(row, wanted)]
    assert [row["id"] for row in archive.export(wanted)] == oldest_first


def nearest_rank(values: list[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[-(-len(ordered) * percent // 100) - 1]


@settings(max_examples=25, deadline=None)
@given(filters, st.sampled_from(["day", "hour", "minute"]))
def test_the_overview_sums_the_matching_rows(archive, rows, wanted, step):
    view = archive.overview(wanted, step)
    found = [row for row in rows if matches(row, wanted)]
    check_sums(view, found)
    given_paths = defaultdict(list)
    for row in found:
        given_paths[row["path"] or "none"].append(row)
    assert set(view["paths"]) == set(given_paths)
    for name, part in given_paths.items():
        check_sums(view["paths"][name], part)
        seconds = [row["seconds"] for row in part]
        ranks = {f"p{percent}": nearest_rank(seconds, percent) for percent in (50, 90, 95, 99)}
        assert view["paths"][name]["latency_s"] == pytest.approx(ranks)
        counted = Counter(  # every difficulty here is some hundredths
            min(99, round(100 * row["difficulty"]))
            for row in part
            if row["difficulty"] is not None and not row["forced"] and name not in ("none", "direct")
        )
        assert {bin_: n for bin_, n in enumerate(view["difficulty"]["routed"].get(name, ())) if n} == counted


def check_sums(view: dict[str, Any], found: list[dict[str, Any]]) -> None:
    known = [row["cost_usd"] for row in found if row["cost_usd"] is not None]
    marks = Counter(opinion(row["feedback"]) for row in found)
    assert view["queries"] == len(found)
    assert view["calls"] == sum(row["calls"] for row in found)
    assert view["cost_usd"] == pytest.approx(sum(known))
    assert view["cost_unknown"] == len(found) - len(known)
    assert view["errors"] == sum(row["status"] == "error" for row in found)
    assert view["degraded"] == sum(row["degraded"] for row in found)
    assert view["feedback"] == {"right": marks["right"], "wrong": marks["wrong"]}
    mean = view["calls"] / len(found) if found else None
    assert view["calls_per_query"] == (mean if mean is None else pytest.approx(mean))


@pytest.mark.parametrize(("step", "length"), [("day", 10), ("hour", 13), ("minute", 16)])
def test_the_timeline_counts_every_trace_once(archive, rows, step, length):
    line = archive.overview(step=step)["timeline"]
    wanted = Counter((row["started_at"][:length], row["path"] or "none") for row in rows)
    assert {(point["at"], point["path"]): point["queries"] for point in line} == wanted
    assert [point["at"] for point in line] == sorted(point["at"] for point in line)
    assert sum(point["cost_unknown"] for point in line) == sum(row["cost_usd"] is None for row in rows)


def test_every_field_of_the_filter_is_tested():
    assert set(Filter.__struct_fields__) == set(FIELDS)
