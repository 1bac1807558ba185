from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from odar.cli.eval_sets import list_benchmarks, score_command
from odar.errors import UsageError


def run(command, *arguments):
    result = CliRunner().invoke(command, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_the_list_names_all():
    rows = json.loads(run(list_benchmarks, "--json"))
    assert len(rows) >= 24
    gpqa = next(row for row in rows if row["name"] == "gpqa")
    assert gpqa["gated"] and gpqa["size"] == 448 and "Idavidrein/gpqa" in gpqa["source"]
    text = run(list_benchmarks)
    assert all(row["name"] in text for row in rows)
    assert "gated" in text


def test_scores_of_recorded_responses(tmp_path):
    file = tmp_path / "r.jsonl"
    file.write_text('{"id": "math-001", "response": "Answer: 13"}\n{"id": "math-002", "response": "Answer: 1"}\n')
    assert "starter: accuracy 50.00 over 2 tasks" in run(score_command, "starter", "--responses", file)
    body = json.loads(run(score_command, "starter+masking", "--responses", file, "--json"))
    assert (body["benchmark"], body["mean"], body["missing"]) == ("starter+masking", 0.5, 234)


def test_the_way_through_the_swe_bench_harness(tmp_path):
    data = tmp_path / "data"
    (data / "swe_bench").mkdir(parents=True)
    issue = {"instance_id": "a__b-1", "repo": "a/b", "text": "Mend it."}
    (data / "swe_bench" / "issues.jsonl").write_text(json.dumps(issue))
    responses, out, report = tmp_path / "r.jsonl", tmp_path / "p.jsonl", tmp_path / "report.json"
    responses.write_text(json.dumps({"id": "a__b-1", "response": "```diff\n--- a/x\n+++ b/x\n```"}))
    report.write_text(json.dumps({"submitted_ids": ["a__b-1"], "resolved_ids": ["a__b-1"]}))
    assert "1 predictions" in run(
        score_command, "swe_bench", "--data", data, "--responses", responses, "--predictions", out
    )
    assert json.loads(out.read_text())["model_patch"] == "--- a/x\n+++ b/x\n"
    body = json.loads(
        run(score_command, "swe_bench", "--data", data, "--responses", responses, "--report", report, "--json")
    )
    assert body["mean"] == 1.0
    with pytest.raises(UsageError, match="--report is for swe_bench"):
        run(score_command, "starter", "--responses", responses, "--report", report)
