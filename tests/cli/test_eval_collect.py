from __future__ import annotations

import gzip
import json
import sys

import pytest

from odar.errors import ProviderError
from odar.lab.benchmarks.base import BENCHMARKS
from odar.lab.recording.files import open_recording
from support import benchmarks
from support.scripted import completion, uncertain_if_wrong

FREE = "price = { input = 0, output = 0 }"


@pytest.fixture
def sums(tmp_path, provider, monkeypatch):
    """Free sums; the fast agent gets every second one wrong."""

    provider.script = uncertain_if_wrong
    monkeypatch.setitem(BENCHMARKS._objects, "sums", benchmarks.sums(20))
    toml = tmp_path / "odar.toml"
    toml.write_text(toml.read_text().replace("price = { input = 1, output = 2 }", FREE))
    return toml


def test_a_second_run_makes_no_calls(odar, sums, provider, tmp_path):
    arguments = ("eval", "collect", "sums", "--out", "p.jsonl", "--limit", "6", "--seed", "42", "--seed", "123")
    first = odar(*arguments, "--samples", "7", "--quiet")
    assert first.code == 0
    assert "12 of 12 questions to answer, at most 108 calls, at most $0.00" in first.err
    assert "12 of 12 items done; p.jsonl holds 12" in first.err
    entries = list(open_recording(tmp_path / "p.jsonl").items())
    assert len({entry.key for entry in entries}) == 12
    assert {len(entry.attempts) for entry in entries} == {9}
    header = open_recording(tmp_path / "p.jsonl").header
    assert (header.samples, header.settings["routing"]["samples"]) == (7, 5)
    asked = len(provider.requests)
    assert odar(*arguments, "--samples", "7").code == 0
    assert len(provider.requests) == asked
    refused = odar(*arguments, "--samples", "3")
    assert (refused.code, "other models, prompts or settings (samples was 7 and is 3)" in refused.err) == (2, True)


def test_a_collection_with_a_cost_needs_consent(odar, sums, provider):
    sums.write_text(sums.read_text().replace(FREE, "price = { input = 1, output = 2 }"))
    result = odar("eval", "collect", "sums", "--out", "p.jsonl", stdin=b"")
    assert (result.code, "add --budget USD or --yes to go on" in result.err) == (2, True)
    assert provider.requests == []
    result = odar("eval", "collect", "sums", "--out", "p.jsonl", "--yes", stdin=b"")
    assert result.code == 0
    assert "spent; p.jsonl holds 20" in result.err


def test_a_budget_stops_the_collection_with_an_exit_code(odar, sums, provider):
    sums.write_text(sums.read_text().replace(FREE, "price = { input = 1, output = 2 }"))
    result = odar("eval", "collect", "sums", "--out", "p.jsonl", "--yes", "--budget", "0.00001", stdin=b"")
    assert (result.code, "0 of 20 items done; p.jsonl holds 0; the same command continues" in result.err) == (
        4,
        True,
    )
    assert "budget of $1e-05 does not cover" in result.err
    assert provider.requests == []


def test_failed_items_are_named_and_retried(odar, sums, provider):
    works = provider.script

    def sometimes(request, index):
        return (
            ProviderError("down", status=503)
            if "What is 7 " in request.messages[-1].text
            else works(request, index)
        )

    provider.script = sometimes
    result = odar("eval", "collect", "sums", "--out", "p.jsonl", "--quiet")
    assert (result.code, "19 of 20 items done; p.jsonl holds 19; the same command continues" in result.err) == (
        3,
        True,
    )
    assert '1 failed with ProviderError, the first (["sums", "7", 42]): down' in result.err
    provider.script = works
    again = odar("eval", "collect", "sums", "--out", "p.jsonl", "--quiet")
    assert (again.code, "1 of 20 questions to answer" in again.err, "p.jsonl holds 20" in again.err) == (
        0,
        True,
        True,
    )


def test_an_unknown_benchmark_is_named(odar, sums):
    unknown = odar("eval", "collect", "smus", "--out", "p.jsonl")
    assert (unknown.code, "unknown benchmark 'smus'; did you mean 'sums'?" in unknown.err) == (2, True)


def test_a_benchmark_graded_elsewhere_is_rejected_before_any_call(odar, sums, provider, tmp_path):
    for name in ("swe_bench", "imo_2025"):
        refused = odar("eval", "collect", name, "--out", "p.jsonl")
        assert refused.code == 2
        assert "odar eval import --answers" in refused.err and f"--set-name {name}" in refused.err
    assert provider.requests == []
    assert not (tmp_path / "p.jsonl").exists()
    (tmp_path / "mine.jsonl").write_text('{"query": "What is 3 + 0 ?", "answer": "3"}')
    rest = odar("eval", "collect", "swe_bench", "mine.jsonl", "--out", "p.jsonl", "--quiet")
    assert rest.code == 0
    assert "odar: left out: swe_bench is graded by its own harness" in rest.err


def test_the_questions_of_a_recording_can_be_collected_with_other_prompts(odar, sums, provider, tmp_path):
    assert odar("eval", "collect", "sums", "--out", "a.jsonl", "--limit", "4", "--quiet").code == 0
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    for name, options in (("a.jsonl", ()), ("a.jsonl.gz", ("--set", "prompts=paper without self-check"))):
        result = odar("eval", "collect", name, "--out", f"b-{name}.jsonl", "--quiet", *options)
        assert result.code == 0
    before, after = (list(open_recording(tmp_path / n).items()) for n in ("a.jsonl", "b-a.jsonl.jsonl"))
    assert {item.key for item in after} == {item.key for item in before}
    assert [item.attempts[0].score for item in after] == [item.attempts[0].score for item in before]


def test_recordings_with_other_prompts_or_models_are_ablations(odar, sums, provider, tmp_path):
    assert odar("eval", "collect", "sums", "--out", "a.jsonl", "--limit", "4", "--quiet").code == 0
    prompts = [f"prompts=paper without {part}" for part in ("self-check", "structure")]
    others = {f"{i}.jsonl": ["--set", change] for i, change in enumerate([*prompts, "fast.alternatives=[]"])} | {
        "n9.jsonl": ["--samples", "9"]
    }
    for out, options in others.items():
        assert odar("eval", "collect", "a.jsonl", "--out", out, *options, "--quiet").code == 0
    (part,) = json.loads(odar("eval", "report", "a.jsonl", *others, "--json").out)
    rows = [row["ablation"] for row in part["tables"]["ablations"]]
    assert sum("(4 items)" in row for row in rows) >= 3


def test_questions_whose_form_is_scored_are_sent_unchanged(odar, sums, provider, tmp_path):
    data = tmp_path / "data" / "ifeval"
    data.mkdir(parents=True)
    row = {"key": 1, "prompt": "What is 4 + 0, in lower case?", "kwargs": [{}]}
    row["instruction_id_list"] = ["change_case:english_lowercase"]
    (data / "input_data.jsonl").write_text(json.dumps(row))
    provider.script = lambda request, index: [completion("it is four, my friend")] * request.n
    result = odar("eval", "collect", "ifeval", "--data", "data", "--out", "p.jsonl", "--quiet")
    assert (result.code, "prompts = 'chat': the form of the answers is scored" in result.err) == (0, True)
    assert [message.text for message in provider.requests[0].messages] == [row["prompt"]]
    mixed = odar("eval", "collect", "ifeval", "sums", "--data", "data", "--out", "q.jsonl")
    assert (mixed.code, "collect them into two recordings" in mixed.err) == (2, True)


def test_ray_is_needed_only_with_engine_ray(odar, sums, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert odar("eval", "collect", "sums", "--out", "p.jsonl", "--limit", "2", "--quiet").code == 0
    result = odar("eval", "collect", "sums", "--out", "p.jsonl", "--engine", "ray", "--quiet")
    assert (result.code, "[ray]'" in result.err) == (2, True)
    assert "p.jsonl holds 2; the same command continues" in result.err


def test_an_empty_benchmark_is_an_error(odar, sums, monkeypatch):
    monkeypatch.setitem(BENCHMARKS._objects, "none", benchmarks.sums(0, name="none"))
    result = odar("eval", "collect", "none", "--out", "p.jsonl")
    assert (result.code, "set none holds no items" in result.err) == (2, True)


def test_a_file_of_questions_is_recorded_like_a_benchmark(odar, sums, provider, tmp_path):
    rows = [{"query": f"What is {i} + 0 ?", "answer": i, "domain": "sums", "split": "held-out"} for i in range(4)]
    by_benchmark = [{"query": f"What is {i} + 0 ?", "gold": str(i), "set": "sums", "id": i} for i in range(2)]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, [*rows, *by_benchmark])))
    result = odar("eval", "collect", "mine.jsonl", "--out", "p.jsonl", "--quiet")
    assert (result.code, "6 of 6 items done" in result.err) == (0, True)
    found = list(open_recording(tmp_path / "p.jsonl").items())
    assert {(item.key.set, item.stratum, item.split) for item in found} == {
        ("mine", "sums", "held-out"),
        ("sums", "", ""),
    }
    slow = {attempt.score for item in found for attempt in item.attempts[1:]}
    assert slow == {1.0}
    (tmp_path / "none.jsonl").write_text('{"query": "x"}')
    refused = odar("eval", "collect", "none.jsonl", "--out", "q.jsonl")
    assert (refused.code, "line 1: has no answer" in refused.err) == (2, True)


def test_a_new_recording_is_jsonl_and_continues(odar, sums, tmp_path):
    refused = odar("eval", "collect", "sums", "--out", "p.jsonl.gz")
    assert (refused.code, "is a .jsonl file" in refused.err) == (2, True)
    assert odar("eval", "collect", "sums", "--out", "p.jsonl", "--limit", "3", "--quiet").code == 0
    again = odar("eval", "collect", "sums", "--out", "p.jsonl", "--limit", "4", "--quiet")
    assert "1 of 4 questions to answer" in again.err


def test_list_names_all_benchmarks(odar):
    rows = json.loads(odar("eval", "list", "--json").out)
    assert len(rows) >= 24
    gpqa = next(row for row in rows if row["name"] == "gpqa")
    assert gpqa["gated"] and gpqa["size"] == 448 and "Idavidrein/gpqa" in gpqa["source"]
    text = odar("eval", "list").out
    assert all(row["name"] in text for row in rows)
    assert "gated" in text
