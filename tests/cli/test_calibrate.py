from __future__ import annotations

import gzip
import json
import re

import pytest

from odar.config import load_settings
from odar.engine import Odar
from odar.errors import ProviderError
from support.scripted import uncertain_if_wrong

FREE = "price = { input = 0, output = 0 }"
PRICED = "price = { input = 1, output = 2 }"


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
    """Few dials, because tables of values take most of the time; and a cache of its own."""
    for name in ("compare", "guarantee"):
        monkeypatch.setattr(f"odar.lab.calibration.{name}.DIALS", ("quality", "balanced", "economy"))
    monkeypatch.setattr("odar.cli.calibrate.MIN_CHOICE", 40)
    monkeypatch.setenv("ODAR_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def data(tmp_path, provider):
    """A file of forty sums; the fast agent gets every second one wrong, the slow one none."""
    provider.script = uncertain_if_wrong
    toml = tmp_path / "odar.toml"
    toml.write_text(toml.read_text().replace(PRICED, FREE) + "[routing]\nsamples = 3\n")
    file = tmp_path / "data.jsonl"
    file.write_text("\n".join(json.dumps({"query": f"What is {i} + 0 ?", "answer": i}) for i in range(40)))
    return file


def calibration(tmp_path, name="calibration.json"):
    return json.loads((tmp_path / name).read_text())


def test_calibrate_prints_a_frontier_and_writes_what_is_best(odar, data, tmp_path):
    result = odar("calibrate", str(data))
    assert result.code == 0
    rows = {line[2:].split("  ")[0].strip(): line for line in result.out.splitlines()}
    assert "0.500 [" in rows["fast"] and "1.000 [" in rows["slow"] and "1.00" in rows["slow"]
    assert {"slow*3", "paper", "choice"} <= {*rows}
    assert sum(line.startswith("→") for line in result.out.splitlines()) == 1
    assert 'calibration = "calibration.json"' in result.out
    assert all(len(line) <= 80 for line in result.out.splitlines())
    body = calibration(tmp_path)
    assert body["made"]["items"] == 40
    assert body["report"]["recommendation"].startswith(("Use the cascade", "No cascade pays here"))
    assert {row["model"] for row in body["sources"]} == {"m"} and len(body["sources"]) == 3
    settings = load_settings(config=tmp_path / "odar.toml", calibration=str(tmp_path / "calibration.json"))
    assert settings.policy == body["settings"]["policy"]
    assert settings.origins["policy",].startswith("calibration ")
    assert Odar(settings).rated_agents["slow"].skill > Odar(settings).rated_agents["fast"].skill
    file = str(tmp_path / "calibration.json")
    assert load_settings(config=tmp_path / "odar.toml", calibration=file, policy="paper").policy == "paper"


def test_a_calibration_of_other_models_is_named_where_it_decides(odar, data, tmp_path):
    made = odar("calibrate", str(data), "--set", "fast.model=m")
    assert '[fast]\n    model = "m"' in made.out and "--fast m " in made.out
    assert "was made for" not in odar("ask", "--set", "calibration=calibration.json", "What is 1 + 1?").err
    body = calibration(tmp_path)
    for row in body["sources"]:
        row["model"] = "other"
    (tmp_path / "other.json").write_text(json.dumps(body))
    asked = odar("ask", "--set", "calibration=other.json", "What is 1 + 1?")
    assert "other.json was made for other: " in " ".join(asked.err.split())


def test_a_second_run_makes_no_calls(odar, data, provider):
    first = json.loads(odar("calibrate", str(data), "--json").out)
    asked = len(provider.requests)
    again = json.loads(odar("calibrate", str(data), "--json").out)
    assert len(provider.requests) == asked
    assert again == first and again["written"] == "calibration.json"
    best = next(row for row in again["choices"] if row["best"])
    assert best["settings"].items() <= again["settings"].items()  # stages too, for a caller who names a dial
    assert best["score"]["low"] <= best["score"]["value"] <= best["score"]["high"]


def test_few_questions_change_nothing_but_statistics(odar, data, tmp_path, monkeypatch):
    monkeypatch.setattr("odar.cli.calibrate.MIN_CHOICE", 41)
    result = odar("calibrate", str(data))
    assert (result.code, "too few to choose a policy" in result.out) == (0, True)
    body = calibration(tmp_path)
    assert (body["settings"], body["belief"]) == ({}, None)
    assert all(row["accuracy"] is not None and row["quantiles"] for row in body["sources"])


def test_statistics_only(odar, data, tmp_path):
    result = odar("calibrate", str(data), "--statistics-only")
    assert (result.code, "m: μ = " in result.out, "accuracy 0." in result.out) == (0, True, True)
    body = calibration(tmp_path)
    assert (body["settings"], body["belief"]) == ({}, None)
    assert [row["count"] for row in body["sources"]] == [40, 40, 120]


def test_without_answers_slow_is_the_reference(odar, data, tmp_path):
    bare = [json.dumps({"query": json.loads(line)["query"]}) for line in data.read_text().splitlines()]
    (tmp_path / "bare.jsonl").write_text("\n".join(bare))
    result = odar("calibrate", "bare.jsonl")
    assert result.code == 0
    assert "same as slow" in result.out and "same answer as slow in" in result.out
    assert "right" not in result.out
    assert json.loads(odar("calibrate", "bare.jsonl", "--json").out)["score"] == "same answer as slow"
    refused = odar("certify", "bare.jsonl", "--at-most-worse", "0.02")
    assert (refused.code, "agreement with slow is not accuracy" in refused.err) == (2, True)


def test_a_calibration_with_a_cost_needs_consent(odar, data, provider, tmp_path):
    toml = tmp_path / "odar.toml"
    toml.write_text(toml.read_text().replace(FREE, PRICED))
    result = odar("calibrate", str(data), stdin=b"")
    assert (result.code, "add --budget USD or --yes to go on" in result.err) == (2, True)
    assert re.search(r"40 of 40 questions to answer, at most 200 calls, about \$0\.1.*, at most \$0\.1", result.err)
    assert provider.requests == []
    result = odar("calibrate", str(data), "--yes", stdin=b"")
    assert result.code == 0
    assert "cost: one slow call is 1.00, or $0.0000" in result.out and "nominal" not in result.out


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
        result = odar("calibrate", *arguments)
        assert (result.code, "questions are too few; at least 30 are needed" in result.err) == (2, True)
    assert provider.requests == []


def test_limits_of_calls_and_cost(odar, data, tmp_path):
    body = json.loads(odar("calibrate", str(data), "--max-calls", "1", "--json").out)
    best = next(row for row in body["choices"] if row["best"])
    assert best["calls"] == 1.0 and best["score"]["value"] == 1.0
    result = odar("calibrate", str(data), "--max-cost", "0.0000000001")
    assert (result.code, "no choice keeps to the limits; the cheapest is" in result.err) == (2, True)


def test_the_papers_thresholds_are_fitted_to_the_papers_policy(odar, data, tmp_path):
    body = json.loads(odar("calibrate", str(data), "--set", "policy=paper", "--json").out)
    assert body["settings"]["policy"] == "paper"
    assert body["settings"]["routing.tau1"] in (0.2, 0.3, 0.4) and body["settings"]["routing.tau2"] in (
        0.6,
        0.7,
        0.8,
    )


def test_a_guarantee(odar, data, tmp_path):
    result = odar("certify", str(data), "--at-most-worse", "0.02")
    assert result.code == 0
    assert "more test questions" in result.out  # 20 test items cannot show two points
    assert max(map(len, result.out.splitlines())) <= 80
    body = calibration(tmp_path)
    assert "certificate" not in body["made"] and body["settings"] == {}
    arguments = ("--at-most-worse", "0.7", "--against", "slow*3", "--set", 'routing.stages=["fast", "slow"]')
    report = json.loads(odar("certify", str(data), *arguments, "--json").out)
    assert report["certificate"]["test_items"] == 20 and report["certificate"]["points"] > 0
    body = calibration(tmp_path)
    assert body["made"]["certificate"]["against"] == "slow*3"
    assert body["settings"]["routing.stages"] == ["fast", "slow"]
    engine = Odar(load_settings(config=tmp_path / "odar.toml", calibration=str(tmp_path / "calibration.json")))
    assert engine.certificate.problems() == []
    assert engine.certificate.promise == "at most 0.7 less accurate than slow*3, 95% confidence"
    for arguments, why in (
        (("--at-most-worse", "0"), "--at-most-worse"),
        (("--confidence", "1"), "--confidence"),
        (("--at-most-worse", "0.1", "--against", "slow*9"), "too few answers for it"),
        (("--at-most-worse", "0.1", "--against", "nobody!"), "nobody!"),
    ):
        result = odar("certify", str(data), *arguments)
        assert (result.code, why in result.err) == (2, True)


def test_an_unwritable_output_keeps_the_answers(odar, data, provider, tmp_path):
    result = odar("calibrate", str(data), "--statistics-only", "--out", "nowhere/c.json")
    assert result.code == 2
    assert "odar: nowhere/c.json cannot be written: No such file or directory" in result.err
    asked = len(provider.requests)
    assert odar("calibrate", str(data), "--statistics-only", "--out", "c.json").code == 0
    assert len(provider.requests) == asked  # the answers were kept
    assert sorted(path.name for path in tmp_path.glob("c.json*")) == ["c.json"]


def test_too_many_failures_leave_too_few_items(odar, data, provider, tmp_path):
    speak = provider.script
    provider.script = lambda request, index: (
        speak(request, index)
        if int(request.messages[-1].text.split()[2]) < 10
        else ProviderError("overloaded", status=529)
    )
    result = odar("calibrate", str(data))
    assert result.code == 2
    assert "30 failed with" in result.err and "overloaded; the same command tries again" in result.err
    assert "odar: 10 items have answers of all agents; at least 30 are needed" in result.err
    assert not (tmp_path / "calibration.json").exists()


@pytest.mark.parametrize(("typed", "code"), [(b"y\n", 0), (b"n\n", 130), (b"", 130)])
def test_the_terminal_asks_for_consent(odar, data, provider, tmp_path, typed, code):
    toml = tmp_path / "odar.toml"
    toml.write_text(toml.read_text().replace(FREE, PRICED))
    result = odar("calibrate", str(data), "--statistics-only", typed=typed)
    assert result.code == code
    assert "go on? [y/N]" in result.err
    assert bool(provider.requests) == (code == 0)


def test_a_recording_can_be_used_for_calibration(odar, data, provider, tmp_path):
    assert odar("eval", "collect", str(data), "--out", "r.jsonl", "--quiet", "--yes").code == 0
    fresh = json.loads(odar("calibrate", str(data), "--json").out)
    asked = len(provider.requests)
    (tmp_path / "r.jsonl.gz").write_bytes(gzip.compress((tmp_path / "r.jsonl").read_bytes()))
    used = odar("calibrate", "r.jsonl.gz", "--json")
    assert used.code == 0 and json.loads(used.out) == fresh
    assert len(provider.requests) == asked


def test_a_recording_with_other_settings_is_rejected(odar, data, provider, tmp_path):
    assert odar("eval", "collect", str(data), "--out", "r.jsonl", "--quiet", "--yes", "--samples", "2").code == 0
    other = odar("calibrate", "r.jsonl", "--set", "fast.temperature=0.9")
    assert (other.code, "fast.temperature was 0.2 and is 0.9); calibrate with those" in other.err) == (2, True)
    fewer = json.loads(odar("calibrate", "r.jsonl", "--json").out)  # with two samples there are fewer choices
    assert not {"slow*3", "paper"} & {row["choice"] for row in fewer["choices"]}


def test_an_imported_recording_gives_skills_and_a_policy_but_no_energies(odar, data, provider, tmp_path):
    for name, right in (("fast", lambda i: i % 2), ("slow", lambda i: True)):
        rows = [
            {
                "id": i,
                "query": f"What is {i} + 0 ?",
                "gold": str(i),
                "answer": str(i if right(i) else 99),
            }
            for i in range(40)
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    files = ("--answers", "cheap=fast.jsonl", "--answers", "dear=slow.jsonl", "--slow", "dear")
    done = odar("eval", "import", *files, "--out", "imported.jsonl")
    assert done.code == 0, done.err
    result = odar("calibrate", "imported.jsonl")  # of other models than those of odar.toml
    assert result.code == 0, result.err
    assert 'to use the result, in odar.toml:\n    [fast]\n    model = "cheap"\n    [slow]' in result.err
    body = calibration(tmp_path)
    assert body["settings"]["policy"]
    assert all((row["count"], row["quantiles"]) == (0, None) and row["accuracy"] for row in body["sources"])
    assert {row["model"] for row in body["sources"]} == {"cheap", "dear"}


def test_stages_of_the_settings_are_not_for_the_models_of_an_imported_recording(odar, data, provider, tmp_path):
    rows = [{"id": i, "query": f"What is {i} + 0 ?", "gold": str(i)} for i in range(60)]
    answers = []
    for name, right, price in (("cheap", False, "0.1,0.1"), ("other", True, "0.2,0.2"), ("dear", True, "10,10")):
        given = [{**row, "answer": row["gold"] if right else f"9{row['id']}"} for row in rows]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, given)))
        answers += ["--answers", f"{name}={name}.jsonl", "--price", f"{name}={price}"]
    done = odar("eval", "import", *answers, "--second", "other", "--out", "imported.jsonl")
    assert done.code == 0, done.err
    result = odar("calibrate", "imported.jsonl", "--json", "--set", 'routing.stages=["fast", "slow"]')
    cascades = [row for row in json.loads(result.out)["choices"] if row["choice"].startswith("cascade")]
    assert any(row["score"]["value"] == 1 and row["cost"] < 0.5 for row in cascades)  # they ask the second


def test_items_held_out_are_not_fitted(odar, data, provider, tmp_path):
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    split = [{**row, "split": "held-out" if i < 5 else "calibrate"} for i, row in enumerate(rows)]
    (tmp_path / "split.jsonl").write_text("\n".join(map(json.dumps, split)))
    assert odar("eval", "collect", "split.jsonl", "--out", "r.jsonl", "--quiet", "--yes").code == 0
    assert odar("calibrate", "r.jsonl", "--statistics-only").code == 0
    assert calibration(tmp_path)["made"]["items"] == len(rows) - 5


def test_comparing_prompt_sets_writes_no_calibration(odar, data, tmp_path, provider):
    arguments = ("eval", "prompts", str(data), "paper", "paper without step-limit")
    rows = json.loads(odar(*arguments, "--json").out)
    steps = ("answer", "verify", "solve")
    assert [(row["prompts"], row["step"], row["answers"]) for row in rows] == [
        (name, step, 40) for name in ("paper", "paper without step-limit") for step in steps
    ]
    accuracy = {(row["prompts"], row["step"]): row["accuracy"] for row in rows}
    assert accuracy["paper", "answer"] == 0.5 and accuracy["paper", "solve"] == 1.0
    asked = len(provider.requests)
    assert "unstated" in odar(*arguments).out
    assert len(provider.requests) == asked  # what was recorded is not asked for again
    assert not (tmp_path / "calibration.json").exists()


def test_an_unknown_prompt_set_is_rejected_before_any_call(odar, data, provider):
    result = odar("eval", "prompts", str(data), "paper", "nowhere")
    assert result.code != 0 and "nowhere" in result.err
    assert not provider.requests
