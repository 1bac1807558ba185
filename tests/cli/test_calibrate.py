from __future__ import annotations

import json

import pytest

from odar.config import load_settings
from odar.engine import Odar
from odar.errors import ProviderError
from odar.policy.path import Thresholds
from support.scripted import uncertain_if_wrong

FREE = "price = { input = 0, output = 0 }"


@pytest.fixture
def data(tmp_path, provider):
    """A file of forty sums; the fast agent gets every second one wrong, the slow one none."""

    provider.script = uncertain_if_wrong
    toml = tmp_path / "odar.toml"
    toml.write_text(toml.read_text().replace("price = { input = 1, output = 2 }", FREE))
    file = tmp_path / "data.jsonl"
    file.write_text("\n".join(json.dumps({"query": f"What is {i} + 0 ?", "answer": i}) for i in range(40)))
    return file


def test_calibrate_writes_a_file_that_changes_routing(odar, data, tmp_path):
    result = odar("calibrate", str(data), "--recording", "r.jsonl")
    assert result.code == 0
    assert "of the items take another path" in result.out
    assert "always hard     1.000" in result.out
    body = json.loads((tmp_path / "calibration.json").read_text())
    assert body["made"]["items"] == 40
    assert [row["model"] for row in body["sources"]].count("m") == 3  # beside those that were known before
    settings = load_settings(config=tmp_path / "odar.toml", calibration=str(tmp_path / "calibration.json"))
    assert settings.origins["fusion", "beta"].startswith("calibration ")
    assert settings.fusion.beta == float(body["settings"]["fusion.beta"])
    engine = Odar(settings)
    assert engine.fusion.skills
    overruled = load_settings(
        config=tmp_path / "odar.toml", calibration=str(tmp_path / "calibration.json"), fusion__beta=7.0
    )
    assert overruled.fusion.beta == 7.0


def test_a_second_run_makes_no_calls(odar, data, provider):
    odar("calibrate", str(data), "--recording", "r.jsonl", "--json")
    asked = len(provider.requests)
    body = json.loads(odar("calibrate", str(data), "--recording", "r.jsonl", "--json").out)
    assert len(provider.requests) == asked
    assert body["written"] == "calibration.json"
    assert body["after"]["accuracy"]["value"] >= body["before"]["accuracy"]["value"] - 0.005


def test_statistics_only_changes_nothing_else(odar, data, tmp_path):
    assert odar("calibrate", str(data), "--recording", "r.jsonl", "--statistics-only").code == 0
    body = json.loads((tmp_path / "calibration.json").read_text())
    assert (body["settings"], body["posterior"], body["estimator"]) == ({}, None, None)
    fast = next(row for row in body["sources"] if row["model"] == "m")
    assert (fast["count"], fast["skill"]) == (40, 1.0)
    assert all("length" in tables for tables in fast["quantiles"].values())


def test_statistics_only_needs_no_answers(odar, data, tmp_path):
    bare = [json.dumps({"query": json.loads(line)["query"]}) for line in data.read_text().splitlines()]
    (tmp_path / "bare.jsonl").write_text("\n".join(bare))
    assert "has no answer" in odar("calibrate", "bare.jsonl", "--recording", "r.jsonl").err
    result = odar("calibrate", "bare.jsonl", "--recording", "r.jsonl", "--statistics-only")
    assert (result.code, "m: μ = " in result.out) == (0, True)
    with_answers = odar(
        "calibrate", str(data), "--recording", "s.jsonl", "--statistics-only", "--json", "--out", "s.json"
    )
    assert json.loads(with_answers.out)["statistics_only"] is True
    first, second = (json.loads((tmp_path / name).read_text()) for name in ("calibration.json", "s.json"))
    assert first["sources"] == second["sources"]


def test_a_calibration_with_a_cost_needs_consent(odar, data, provider, tmp_path):
    toml = tmp_path / "odar.toml"
    toml.write_text(toml.read_text().replace(FREE, "price = { input = 1, output = 2 }"))
    result = odar("calibrate", str(data), "--recording", "r.jsonl", stdin=b"")
    assert (result.code, "add --budget USD or --yes to go on" in result.err) == (2, True)
    assert "40 of 40 items to answer, 7 calls each, at most $" in result.err
    assert provider.requests == []
    assert odar("calibrate", str(data), "--recording", "r.jsonl", "--yes", stdin=b"").code == 0


@pytest.mark.parametrize("content", ["{}", "[", '{"format": "odar-calibration-99"}'])
def test_an_invalid_calibration_file_is_named(odar, provider, tmp_path, content):
    (tmp_path / "c.json").write_text(content)
    result = odar("ask", "--set", "calibration=c.json", "What?")
    assert (result.code, "calibration c.json" in result.err) == (2, True)
    missing = odar("ask", "--set", "calibration=none.json", "What?")
    assert (missing.code, "cannot be read" in missing.err) == (2, True)


def test_too_few_questions_are_rejected_before_any_call(odar, data, provider, tmp_path):
    few = tmp_path / "few.jsonl"
    few.write_text("\n".join(data.read_text().splitlines()[:29]))
    for arguments in ([str(few)], ["--limit", "8"]):
        result = odar("calibrate", *arguments, "--recording", "r.jsonl")
        assert result.code == 2
        assert "items are too few; at least 30 are needed to fit anything" in result.err
    assert provider.requests == []
    assert not (tmp_path / "r.jsonl").exists()


def test_savings_are_shown_with_an_interval(odar, data):
    result = odar("calibrate", str(data), "--recording", "r.jsonl")
    gain = next(line for line in result.out.splitlines() if line.startswith("gain"))
    assert gain.count("[") == 2
    assert "; calls " in gain
    assert all(len(line) <= 80 for line in result.out.splitlines() if "calibration.json" not in line)
    body = json.loads(odar("calibrate", str(data), "--recording", "r.jsonl", "--json").out)
    assert body["calls_gain"]["low"] <= body["calls_gain"]["value"] <= body["calls_gain"]["high"]
    assert body["cost_usd_gain"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert body["tolerance"] == 0.05


def test_costs_are_shown_if_the_models_have_prices(odar, data, tmp_path):
    toml = tmp_path / "odar.toml"
    toml.write_text(toml.read_text().replace(FREE, "price = { input = 1, output = 2 }"))
    result = odar("calibrate", str(data), "--recording", "r.jsonl", "--budget", "5")
    assert "        cost, $ " in result.out
    body = json.loads((tmp_path / "calibration.json").read_text())
    assert body["report"]["cost_usd_gain"] is not None


def test_a_worse_fit_is_rejected_with_a_reason(odar, data, tmp_path, monkeypatch):
    """The fit is replaced by one that always uses the fast agent, which is right half of the time."""
    monkeypatch.setattr("odar.calibration.routing_fit.keeps_accuracy", lambda *_: True)
    monkeypatch.setattr("odar.calibration.routing_fit.candidate_thresholds", lambda *_: [Thresholds(1.0, 1.0)])
    always_hard = ("--set", "routing.tau1=0", "--set", "routing.tau2=0")
    arguments = ("calibrate", str(data), "--recording", "r.jsonl", *always_hard)
    result = odar(*arguments)
    assert result.code == 1
    assert "not installed: on held-out folds, accuracy is significantly below the current settings" in result.err
    written = json.loads((tmp_path / "calibration.json").read_text())
    assert written["settings"] == {}  # μ, σ and quantiles alone
    assert any(row["quantiles"] for row in written["sources"])
    assert json.loads(odar(*arguments, "--json").out)["statistics_only"] is True
    forced = odar(*arguments, "--force")
    assert forced.code == 0
    assert json.loads((tmp_path / "calibration.json").read_text())["settings"]["routing.tau1"] == 1.0


def test_a_goal_with_a_limit_and_a_guarantee(odar, data, tmp_path):
    common = ("calibrate", str(data), "--recording", "r.jsonl")
    result = odar(*common, "--goal", "accuracy", "--max-calls", "3.6", "--json")
    assert json.loads(result.out)["after"]["calls"]["value"] < 4.5
    result = odar(*common, "--at-most-worse", "0.05")
    assert result.code == 0
    assert "nothing cheaper than always-hard" in result.out  # 20 test items cannot show five points
    assert "more test items" in result.out
    assert "exchangeable" in result.out
    assert max(map(len, result.out.splitlines())) <= 80
    body = json.loads(odar(*common, "--at-most-worse", "0.6", "--against", "always-slow", "--json").out)
    assert body["certificate"]["test_items"] == 20
    result = odar(*common, "--at-most-worse", "0")
    assert (result.code, "--at-most-worse 0" in result.err) == (2, True)


def test_an_unwritable_output_keeps_the_recording(odar, data, provider, tmp_path):
    result = odar("calibrate", str(data), "--recording", "r.jsonl", "--out", "nowhere/c.json")
    assert result.code == 2
    assert "odar: nowhere/c.json cannot be written: No such file or directory" in result.err
    asked = len(provider.requests)
    assert odar("calibrate", str(data), "--recording", "r.jsonl", "--out", "c.json").code == 0
    assert len(provider.requests) == asked  # the answers were kept
    assert sorted(path.name for path in tmp_path.glob("c.json*")) == ["c.json"]


def test_too_many_failures_leave_too_few_items(odar, data, provider, tmp_path):
    speak = provider.script
    provider.script = lambda request, index: (
        speak(request, index)
        if int(request.messages[-1].text.split()[2]) < 10
        else ProviderError("overloaded", status=529)
    )
    result = odar("calibrate", str(data), "--recording", "r.jsonl")
    assert result.code == 2
    assert "30 failed with" in result.err and "overloaded; the same command tries again" in result.err
    assert "odar: 10 items have answers; at least 30 are needed to fit anything" in result.err
    assert not (tmp_path / "calibration.json").exists()


@pytest.mark.parametrize(("typed", "code"), [(b"y\n", 0), (b"n\n", 130), (b"", 130)])
def test_the_terminal_asks_for_consent(odar, data, provider, tmp_path, typed, code):
    toml = tmp_path / "odar.toml"
    toml.write_text(toml.read_text().replace(FREE, "price = { input = 1, output = 2 }"))
    result = odar("calibrate", str(data), "--recording", "r.jsonl", typed=typed)
    assert result.code == code
    assert "go on? [y/N]" in result.err
    assert bool(provider.requests) == (code == 0)


def test_a_recording_can_be_used_for_calibration(odar, data, provider, tmp_path):
    assert odar("eval", "collect", str(data), "--out", "r.jsonl", "--quiet", "--yes").code == 0
    asked = len(provider.requests)
    fresh = odar("calibrate", str(data), "--recording", "own.jsonl", "--json")
    asked_again, asked = len(provider.requests) - asked, len(provider.requests)
    assert asked_again > 0
    for file in ("r.jsonl", "r.jsonl.gz", "r.parquet"):
        if file != "r.jsonl":
            assert odar("eval", "convert", "r.jsonl", file).code == 0
        used = odar("calibrate", "--from", file, "--json")
        assert used.code == fresh.code == 0
        assert json.loads(used.out)["after"]["accuracy"] == json.loads(fresh.out)["after"]["accuracy"]
    assert len(provider.requests) == asked
    assert odar("calibrate", "--from", "own.jsonl").code == 0  # what calibrate recorded is a recording too


def test_a_recording_with_other_settings_is_rejected(odar, data, provider, tmp_path):
    assert odar("eval", "collect", str(data), "--out", "r.jsonl", "--quiet", "--yes", "--samples", "3").code == 0
    other = odar("calibrate", "--from", "r.jsonl", "--set", "fast.temperature=0.9")
    assert (other.code, "(fast.temperature was 0.2 and is 0.9); calibrate with those" in other.err) == (2, True)
    few = odar("calibrate", "--from", "r.jsonl")
    assert (few.code, "add --set routing.samples=3" in few.err) == (2, True)
    assert odar("calibrate", "--from", "r.jsonl", "--set", "routing.samples=3").code == 0
    both = odar("calibrate", str(data), "--from", "r.jsonl")
    assert (both.code, "does not go together" in both.err) == (2, True)


def test_items_of_the_judge_split_are_not_fitted(odar, data, provider, tmp_path):
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    split = [{**row, "split": "judge" if i < 5 else "calibrate"} for i, row in enumerate(rows)]
    (tmp_path / "split.jsonl").write_text("\n".join(map(json.dumps, split)))
    assert odar("eval", "collect", "split.jsonl", "--out", "r.jsonl", "--quiet", "--yes").code == 0
    assert odar("calibrate", "--from", "r.jsonl").code == 0
    assert json.loads((tmp_path / "calibration.json").read_text())["made"]["items"] == len(rows) - 5


def test_comparing_prompt_sets_writes_no_calibration(odar, data, tmp_path, provider):
    arguments = ("calibrate", str(data), "--prompts", "default", "--prompts", "default without step-limit")
    rows = json.loads(odar(*arguments, "--json").out)
    steps = ("answer", "verify", "solve")
    assert [(row["prompts"], row["step"], row["answers"]) for row in rows] == [
        (name, step, 40) for name in ("default", "default without step-limit") for step in steps
    ]
    accuracy = {(row["prompts"], row["step"]): row["accuracy"] for row in rows}
    assert accuracy["default", "answer"] == 0.5 and accuracy["default", "solve"] == 1.0
    asked = len(provider.requests)
    assert "unstated" in odar(*arguments).out
    assert len(provider.requests) == asked  # what was recorded is not asked for again
    assert not (tmp_path / "calibration.json").exists()


def test_an_unknown_prompt_set_is_rejected_before_any_call(odar, data, provider):
    result = odar("calibrate", str(data), "--prompts", "default", "--prompts", "nowhere")
    assert result.code != 0 and "nowhere" in result.err
    assert not provider.requests
