"""The JSON of the dashboard over HTTP: contents, access and errors."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest

from odar.errors import ProviderUnreachable
from odar.served.alignment import DriftReport
from odar.traces.record import Record
from odar.types import Query
from support.dashboard import board
from support.scripted import ScriptedProvider
from support.traces import make_answer, make_record
from support.traffic import traffic

ADDRESSES = ("/session", "/overview", "/traces", "/traces/x", "/export", "/models")


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    """A gateway with 120 queries of the last day."""
    with board(tmp_path_factory.mktemp("busy"), traffic(120), store__content=True) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """Two keys with a trace each, and one that sees both."""
    secrets: dict[str, str] = {}
    names = (("ann", False), ("bob", False), ("chief", True))
    with board(tmp_path_factory.mktemp("guarded"), keys=names, secrets=secrets) as running:
        for name in ("ann", "bob"):
            key = running.store.key_cache.verify(secrets[name])
            running.store.put(make_record(id=name * 4, key_id=key.id))
        running.store._writer.flush().result(10)
        yield running, secrets


# ── what it says ────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_empty_store_gives_empty_results(tmp_path):
    with board(tmp_path) as empty:
        assert empty.get("/overview").json["queries"] == 0
        assert empty.get("/traces").json == {"traces": [], "next": None}
        assert empty.get("/traces/0123").status == 404
        assert (empty.get("/export").status, empty.get("/export").body) == (200, b"")
        session = empty.get("/session").json
        assert (session["key"], session["recording"], session["content"]) == (None, True, False)
        assert (session["policy"], session["dial"]) == ("cascade", "balanced")


def test_the_figures_of_the_overview_are_consistent(busy):
    view = busy.get("/overview", step="hour").json
    assert view["queries"] == 120
    assert sum(path["queries"] for path in view["paths"].values()) == 120
    assert sum(point["queries"] for point in view["timeline"]) == 120
    assert all(len(point["at"]) == len("2026-11-15T10") for point in view["timeline"])
    routed = view["difficulty"]["routed"]
    assert sum(map(sum, routed.values())) == 120 - view["paths"]["none"]["queries"]
    assert view["cost_unknown"] > 0


def test_a_time_range_limits_the_overview(busy):
    since = (datetime.now(UTC) - timedelta(hours=2)).isoformat()
    recent = busy.get("/overview", since=since).json["queries"]
    assert 0 < recent < 120
    assert len(busy.get("/traces", since=since, limit=200).json["traces"]) == recent


def test_a_trace_has_everything_the_page_shows(busy):
    row = busy.get("/traces", path="hard", limit=1).json["traces"][0]
    trace = busy.get(f"/traces/{row['id']}").json
    assert [title for title, _ in trace["story"]] == ["start", "fast+slow*5", "answer"]
    document = trace["document"]
    assert document["query"]["text"] == row["question"]
    assert len(document["plan"]["estimate"]["contributions"]) == 24
    assert len(document["groups"]) == len(document["candidates"]) == 6
    assert document["calls"][1]["began_s"] == 0.004
    candidate = document["candidates"][0]
    assert [candidate["tokens"][i] for i in candidate["scaffold"]][-1] == " Answer:"
    assert candidate["control"] == [len(candidate["tokens"]) - 1]


def test_feedback_is_shown(busy):
    trace = busy.get("/traces", path="medium", limit=1).json["traces"][0]["id"]
    assert busy.post("/v1/feedback", {"trace_id": trace, "correct": True}).status == 200
    assert busy.get(f"/traces/{trace}").json["feedback"]["correct"] is True
    assert busy.get("/overview").json["paths"]["medium"]["feedback"] == {"right": 1, "wrong": 0}


def test_models_have_state_and_statistics(tmp_path):
    with board(tmp_path, local=True) as running:
        report = running.get("/models").json
        first = report["models"][0]
        assert (first["name"], first["usable"]) == ("smollm2-135m", True)
        assert {agent["agent"] for agent in first["agents"]} == {"fast", "slow"}
        assert {row["step"] for row in first["statistics"]} >= {"answer", "verify", "solve"}
        assert all(row["deviation"] > 0 for row in first["statistics"])
        by_name = {model["name"]: model for model in report["models"]}
        assert by_name["gpt-5.1"]["usable"] is False  # no key for its provider


def test_drift_is_shown_with_its_model(tmp_path, monkeypatch):
    rows = [DriftReport(model, "answer", 60.0, 0.2, 0.02, 9.0, drifting=True) for model in ("quick", "unheard of")]
    with board(tmp_path) as running:
        monkeypatch.setattr(type(running.service), "drift_report", lambda self: rows)
        shown = [row for model in running.get("/models").json["models"] for row in model["drift"]]
    assert shown == [dataclasses.asdict(rows[0])]


def test_an_open_breaker_is_shown(tmp_path, monkeypatch):
    monkeypatch.setattr("odar.providers.breaker.FAILURES", 1)
    down = ScriptedProvider(lambda request, index: ProviderUnreachable("p: gone", provider="p"), "p")
    with board(tmp_path, provider=down) as running:
        assert running.ask("Hi", path="simple").status >= 500
        breaker = running.get("/models").json["breakers"]["p"]
        assert breaker["state"] == "open"
        assert (breaker["failures"] >= 1, 0 < breaker["retry_s"] <= 80) == (True, True)


# ── the playground ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_playground_gets_the_whole_trace(tmp_path):
    with board(tmp_path, store__content=False) as running:
        said = running.ask("What is two and two?", path="medium", explain=True).json["odar"]
        document = said["explanation"]
        assert (document["path"], document["query"]["text"]) == ("medium", "What is two and two?")
        assert document["candidates"][0]["tokens"] == ["It", " is", " four."]
        assert said["story"][0][0] == "start"
        stored = running.get(f"/traces/{said['trace_id']}")
        assert "tokens" not in stored.json["document"]["candidates"][0]
        assert b"two and two" not in stored.body


# ── to whom ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_files_are_public_and_figures_are_not(guarded):
    running, _ = guarded
    assert running.file("/").status == 200
    for address in ADDRESSES:
        assert running.get(address).status == 401, address
        assert running.get(address, "odar_sk_wrong").json["error"]["code"] == "invalid_api_key"
    assert running.ask("Hi").status == 401


def test_a_key_sees_its_own_traces_and_an_admin_all(guarded):
    running, secrets = guarded
    for name, others in (("ann", "bob"), ("bob", "ann")):
        key = secrets[name]
        assert [t["id"] for t in running.get("/traces", key).json["traces"]] == [name * 4]
        assert running.get("/overview", key).json["queries"] == 1
        assert len(running.get("/export", key).body.splitlines()) == 1
        assert running.get(f"/traces/{name * 4}", key).status == 200
        stranger = running.get(f"/traces/{others * 4}", key)
        nobody = running.get("/traces/nobody", key)
        assert stranger.status == nobody.status == 404
        assert stranger.json["error"]["code"] == nobody.json["error"]["code"]
    chief = secrets["chief"]
    assert len(running.get("/traces", chief).json["traces"]) == 2
    assert running.get("/traces/bobbobbobbob", chief).status == 200
    assert running.get("/session", chief).json["key"]["admin"] is True


def test_only_keys_that_see_a_trace_can_mark_it(guarded):
    running, secrets = guarded
    mark = {"trace_id": "bobbobbobbob", "correct": False}
    assert running.post("/v1/feedback", mark, secrets["ann"]).status == 404
    assert running.get("/traces/bobbobbobbob", secrets["chief"]).json["feedback"] is None
    for name in ("bob", "chief"):
        assert running.post("/v1/feedback", mark, secrets[name]).status == 200
    assert running.post("/v1/feedback", mark | {"trace_id": "nobody"}, secrets["ann"]).status == 404


def test_a_filter_cannot_widen_what_a_key_sees(guarded):
    running, secrets = guarded
    bob = running.store.key_cache.verify(secrets["bob"]).id
    for secret, ids in ((secrets["ann"], ["annannannann"]), (secrets["chief"], ["bobbobbobbob"])):
        assert [t["id"] for t in running.get("/traces", secret, key=bob).json["traces"]] == ids


def test_without_keys_other_machines_and_pages_are_rejected(busy):
    assert busy.file("/dashboard/api/traces", host="evil.example").status == 403
    assert busy.file("/dashboard/api/traces", origin="https://evil.example").status == 403


# ── bad requests ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"since": "yesterday"}, "since"),
        ({"since": "0001-01-01T00:00:00+23:59"}, "since"),
        ({"until": "9999-12-31T23:59:59-23:59"}, "until"),
        ({"limit": "²"}, "limit"),
        ({"after": "nowhere"}, "after"),
    ],
)
def test_an_invalid_parameter_is_named(busy, params, param):
    reply = busy.get("/traces", **params)
    assert (reply.status, reply.json["error"]["param"]) == (400, param)


@pytest.mark.parametrize("address", ["/overview", "/export"])
def test_an_invalid_filter_is_rejected_everywhere(busy, address):
    assert busy.get(address, since="yesterday").status == 400


@pytest.mark.parametrize("name", ["nothing", "%2e%2e%2ffiles.py", "..%2f..%2fconfig.py", "%00", "é"])
def test_unknown_traces_and_files_are_404(busy, name):
    from urllib.parse import quote

    assert busy.file(f"/dashboard/{quote(name, safe='%')}").status == 404
    assert busy.file(f"/dashboard/api/traces/{quote(name, safe='%')}").status == 404


def test_hostile_texts_are_returned_as_json(tmp_path):
    text = "</script><script>alert(1)</script>\u202e\ud800\0" + "x" * 1_000_000
    hostile = Record(Query(text.replace("\0", "")), make_answer(id="evil", text=text, cost=float("inf")).trace)
    with board(tmp_path, [hostile], store__content=True) as running:
        reply = running.get("/traces/evil")
        assert reply.headers["content-type"] == "application/json"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.json["document"]["candidates"][0]["text"].startswith("</script>")
        assert reply.json["document"]["spend"]["cost_usd"] is None
        assert reply.json["cost_usd"] is None
        assert len(running.get("/traces").json["traces"][0]["question"]) == 160
