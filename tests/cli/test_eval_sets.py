from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from odar.cli.eval_collect import list_benchmarks, score_command
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


@pytest.fixture
def responses(tmp_path):
    """Two tasks of maths, one of another domain, and a prompt that differs a little from the starter set's."""
    file = tmp_path / "r.jsonl"
    rows = [{"id": "math-001", "response": "Answer: 13"}, {"id": "math-002", "response": "Answer: 1"}]
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


def score(odar, name, file, *more):
    return odar("eval", "score", name, "--responses", str(file), *map(str, more))


def test_what_was_left_out_is_said_beside_the_figures(odar, responses):
    result = score(odar, "starter", responses)
    assert result.code == 0
    assert result.out.startswith("starter: accuracy 50.00 over 2 tasks\n")
    assert result.err == "234 tasks have no response and are left out\n"


def test_figures_and_strata_of_their_own_are_listed(odar, tmp_path):
    from odar.recording.questions import starter_questions

    picked = [*starter_questions()[:2], *starter_questions()[-2:]]
    file = tmp_path / "r.jsonl"
    file.write_text("\n".join(json.dumps({"id": i.id, "response": f"Answer: {i.answers[0]}"}) for i in picked))
    lines = score(odar, "starter", file).out.splitlines()
    assert lines[0] == "starter: accuracy 100.00 over 4 tasks"
    strata = {line.split()[0]: line.split()[-2:] for line in lines[1:]}
    assert strata == {domain: ["100.00", "2"] for domain in {item.stratum for item in picked}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "none of the 0 responses has the id or the prompt of a starter task"),
        ('{"id": "nobody", "response": "x"}', "none of the 1 responses has the id"),
        ('{"id": "math-001"}', "needs response, and id or prompt"),
        ("{", "r.jsonl"),
    ],
)
def test_responses_that_cannot_be_scored_are_one_clear_line(odar, tmp_path, text, said):
    (tmp_path / "r.jsonl").write_text(text)
    result = score(odar, "starter", tmp_path / "r.jsonl")
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_predictions_are_for_the_harness_alone(odar, responses, tmp_path):
    result = score(odar, "starter", responses, "--predictions", tmp_path / "p.jsonl")
    assert (result.code, result.err) == (2, "odar: --predictions is for swe_bench, not starter\n")
    assert not (tmp_path / "p.jsonl").exists()


def test_predictions_of_nothing_are_refused(odar, responses, tmp_path):
    (tmp_path / "swe_bench").mkdir()
    issue = {"instance_id": "a__b-1", "repo": "a/b", "text": "Mend it."}
    (tmp_path / "swe_bench" / "issues.jsonl").write_text(json.dumps(issue))
    result = score(odar, "swe_bench", responses, "--data", tmp_path, "--predictions", tmp_path / "p.jsonl")
    assert (result.code, result.err) == (2, "odar: none of the 2 responses belongs to a SWE-bench issue\n")
    assert not (tmp_path / "p.jsonl").exists()


def test_a_folder_without_the_benchmark_says_how_to_get_it(odar, responses, tmp_path):
    result = score(odar, "gsm8k", responses, "--data", tmp_path)
    assert result.code == 2
    assert "gsm8k is not in" in result.err and "fetch it with `hf download" in result.err
