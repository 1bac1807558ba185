from __future__ import annotations

import json
import re
import sqlite3
import sys

import pytest

from odar.config import load_settings
from odar.errors import ProviderError
from odar.traces.database import Database
from odar.traces.record import Record, Unanswered
from odar.traces.writer import make_row, write_rows
from odar.types import Query
from support.scripted import completion
from support.traces import ago, make_record


@pytest.fixture
def url(tmp_path, monkeypatch):
    url = str(tmp_path / "store" / "odar.db")
    monkeypatch.setenv("ODAR_STORE_URL", url)
    return url


@pytest.fixture
def put(url):
    """Return a function that writes records into the store of the commands."""

    def write(*records: Record, content: bool = False) -> None:
        database = Database(load_settings("tiny", config="/dev/null").store)
        with database.write() as connection:
            write_rows(connection, [make_row(record, content=content) for record in records])
        database.close()

    return write


FAILED = Record(
    Query("Who?"),
    Unanswered(id="dead", started_at=ago(), profile="p"),
    error="fast: down",
    error_summary="fast: down",
)


def test_ask_stores_a_trace_without_texts(odar, provider, url):
    trace_id = json.loads(odar("ask", "--json", "--path", "hard", "What is 2 + 2?").out)["id"]
    shown = json.loads(odar("traces", "show", trace_id[:8], "--json").out)
    assert (shown["id"], shown["path"], shown["calls"], shown["status"]) == (trace_id, "hard", 6, "ok")
    assert shown["document"]["query"] == {"text_characters": 14, "images": []}
    assert "Answer" not in json.dumps(shown)


def test_the_settings_decide_whether_texts_or_traces_are_stored(odar, provider, url):
    odar("ask", "--set", "store.content=true", "What is 2 + 2?")
    odar("ask", "--set", "store.enabled=false", "What is 3 + 3?")
    (trace,) = json.loads(odar("traces", "--json").out)["traces"]
    shown = odar("traces", "show", trace["id"]).out
    assert "What is 2 + 2?" in shown


@pytest.mark.parametrize("trouble", ["no database", "a folder", "locked"])
def test_a_broken_store_prints_one_line_and_the_answer(odar, provider, tmp_path, monkeypatch, trouble):
    monkeypatch.setattr("odar.cli.ask._STORE_TIMEOUT_S", 0.05)
    path = tmp_path / "broken.db"
    other = None
    if trouble == "no database":
        path.write_text("no database " * 100)
    elif trouble == "a folder":
        path.mkdir()
    else:
        Database(load_settings("tiny", config="/dev/null", store={"url": str(path)}).store).close()
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
    result = odar("ask", "--short", "--set", f"store.url={path}", "What is 2 + 2?")
    assert (result.code, result.out) == (0, "4\n")
    (line,) = result.err.splitlines()
    assert line.startswith(f"odar: trace not recorded: store {path}")
    if other:
        other.close()


def test_a_list_is_readable_at_80_columns(odar, put, monkeypatch):
    put(
        make_record(
            id="a" * 32, path="hard", cost=123.456, seconds=99.5, models=("a-model-with-a-name", "of-great-length")
        ),
        make_record(id="[bold]", cost=None, degradations=("slow agent: down",)),
        make_record(id="cheap", cost=0.0000031),
        FAILED,
    )
    odar("feedback", "aaaa", "right")
    assert "a-model-with-a-name, of-great-length" in odar("traces").out  # nothing is cut in a pipe
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    result = odar("traces")
    assert result.code == 0
    lines = re.sub(r"\x1b\[[0-9;]*m", "", result.out).splitlines()
    assert max(map(len, lines)) <= 80
    assert "aaaaaaaa" in result.out
    assert "$123.46" in result.out
    assert "$0.0000031" in result.out
    assert "a-model-with-a-na" in result.out
    assert "unknown" in result.out
    assert "[bold]" in result.out
    assert " E" in next(line for line in lines if line.startswith("dead"))
    assert " + " in next(line for line in lines if line.startswith("aaaaaaaa"))


def test_filters_and_pages(odar, put):
    put(
        *(
            make_record(id=f"t{i}", started_at=f"2026-11-15T10:00:0{i}Z", path="hard" if i % 2 else "simple")
            for i in range(6)
        )
    )
    put(make_record("Where is the heron?", id="t9", started_at="2026-11-15T10:00:09Z"), content=True)

    def ids(*options: str) -> list[str]:
        return [trace["id"] for trace in json.loads(odar("traces", "--json", *options).out)["traces"]]

    assert ids("--path", "hard") == ["t5", "t3", "t1"]
    assert ids("--since", "2026-11-15T10:00:04", "--until", "2026-11-15T10:00:05") == ["t4"]
    assert ids("--text", "HERON") == ["t9"]
    assert ids("--degraded") == []
    assert ids("--model", "dear", "--min-cost", "0.001", "--whole", "--limit", "1") == ["t9"]
    first = odar("traces", "--limit", "4")
    assert "odar: more with --after 2026-11-15T10:00:03.000+00:00_t3" in first.err
    assert ids("--after", "2026-11-15T10:00:03.000+00:00_t3") == ["t2", "t1", "t0"]


def test_relative_times(odar, put):
    put(make_record(id="old", started_at=ago(days=3)), make_record(id="new", started_at=ago(minutes=3)))
    assert [t["id"] for t in json.loads(odar("traces", "--json", "--since", "2d").out)["traces"]] == ["new"]
    assert [t["id"] for t in json.loads(odar("traces", "--json", "--until", "1h").out)["traces"]] == ["old"]


def test_an_empty_list_prints_a_hint(odar, url):
    assert odar("traces").err == "odar: no traces yet; try: odar ask\n"
    result = odar("traces", "--text", "heron")
    assert (result.code, result.out) == (0, "")
    assert result.err == (
        "odar: no traces match\nodar: --text finds only what was stored with store.content = true\n"
    )


def test_show_marks_texts_that_were_not_stored(odar, put):
    put(make_record("What is 2 plus 2?", id="ab12", degradations=("slow agent: down",), key_id="key_1"), FAILED)
    odar("feedback", "ab", "wrong", "--note", "it is 5")
    result = odar("traces", "show", "ab")
    assert max(map(len, result.out.splitlines())) <= 80
    for word in ("(17 characters, not kept)", "answer A", "slow agent: down", "key_1", "wrong: it is 5"):
        assert word in result.out
    failed = odar("traces", "show", "dead").out
    assert "fast: down" in failed
    assert "none was chosen" in failed


def test_export_streams_and_appends(odar, put, tmp_path):
    put(*(make_record(id=f"t{i}", started_at=f"2026-11-15T10:00:0{i}Z") for i in range(4)), content=True)
    lines = odar("traces", "export").out.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["t0", "t1", "t2", "t3"]
    assert json.loads(lines[0])["document"]["query"]["text"] == "What is 2 plus 2?"
    out = tmp_path / "out.jsonl"
    assert (
        odar("traces", "export", "--until", "2026-11-15T10:00:02", "--out", str(out)).err
        == f"odar: 2 traces to {out}\n"
    )
    odar("traces", "export", "--since", "2026-11-15T10:00:02", "--out", str(out))
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == ["t0", "t1", "t2", "t3"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["traces", "show", "zz"], "unknown trace 'zz'"),
        (["traces", "--since", "noon"], "time 'noon' is not ISO 8601"),
        (["traces", "--since", "999999999w"], "is not ISO 8601"),
        (["traces", "--after", "x"], "cursor 'x' is not valid"),
        (["traces", "export", "--out", "/nowhere/x.jsonl"], "--out '/nowhere/x.jsonl' cannot be written"),
        (["feedback", "zz", "right"], "unknown trace 'zz'"),
        (["traces", "--set", "store.url=mysql://host/db"], "store.url has the scheme 'mysql'"),
    ],
)
def test_invalid_input_is_a_one_line_error(odar, url, arguments, message):
    result = odar(*arguments)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_feedback_prints_the_full_id(odar, put):
    put(make_record(id="ab12"))
    assert odar("feedback", "ab", "right").out == "ab12 right\n"


def test_a_failed_question_stores_no_trace(odar, provider, url):
    provider.script = lambda request, index: ProviderError("no credit", status=402)
    assert odar("ask", "What?").code == 3
    provider.script = lambda request, index: [completion("Answer: 4")] * request.n
    odar("ask", "What?")
    assert len(json.loads(odar("traces", "--json").out)["traces"]) == 1


def test_passwords_are_not_shown(odar, provider, monkeypatch):
    monkeypatch.setenv("ODAR_STORE_URL", "postgresql://me:secret@host/odar")
    for arguments in (["config"], ["config", "--json"], ["config", "store.url"]):
        shown = odar(*arguments)
        assert "secret" not in shown.out + shown.err
    assert "postgresql://me:***@host/odar" in odar("config", "--json").out
    monkeypatch.setenv("ODAR_STORE_URLL", "postgresql://me:secret@host/odar")
    assert "secret" not in odar("config").err


def test_the_summary_shows_savings_and_warnings(odar, put):
    put(*(make_record(id=f"a{i}", cost=0.01, baseline=0.004) for i in range(25)), FAILED)
    shown = odar("traces", "--summary").out
    assert "26 questions" in shown
    rows = {line.split("  ")[0]: line.split()[-3:] for line in shown.splitlines() if line[:1] in "aos"}
    assert rows["actual"] == ["0.2500", "50", "25"]
    assert rows["always slow"] == ["0.1000", "25", "25"]
    assert rows["saved"] == ["-0.1500", "-25", "+0"]
    assert "fast answer changed by another agent: 0% of 25 answers" in shown
    assert "asked fast, slow:verify: 25" in shown
    assert "slow answers cut off: 0 of 25 (0%)" in shown
    assert "warning: ODAR cost $0.25, 150% more than" in " ".join(shown.split())
    view = json.loads(odar("traces", "--summary", "--json").out)
    assert view["savings"]["calls_saved"] == 25 - view["savings"]["calls"]
    assert odar("traces", "--summary", "--since", "2099-01-01").err.startswith("odar: no traces match")


def test_an_unknown_baseline_is_unknown(odar, put):
    put(*(make_record(id=f"a{i}", cost=0.01, baseline=None) for i in range(3)))
    shown = odar("traces", "--summary").out
    assert "always slow unknown" in " ".join(shown.split())
    assert "without 3 questions of unknown cost" in shown


def test_an_unknown_cost_is_not_free(odar, put):
    put(*(make_record(id=f"a{i}", cost=None, baseline=None) for i in range(3)), FAILED)
    shown = odar("traces", "--summary").out
    assert "the cost of 3 is unknown; 1 failed" in shown and "free" not in shown
