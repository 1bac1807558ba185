from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from odar.lab.recording.files import open_recording

FILES = Path(__file__).parents[2] / "tests/lab/recording/files"
FAST, SLOW = map(str, sorted(FILES.glob("samples_starter_gen_*.jsonl")))


@pytest.fixture
def pair(tmp_path):
    """A table with both models; the large one is right more often."""
    rows = [
        {"question": f"What is {i} + {i}?", "gold": 2 * i, "outputs": {
            "small": f"Answer: {2 * i + (i % 3 == 0)}", "large": f"Answer: {2 * i + (i % 10 == 0)}"},
         "sure": 0.5 if i % 3 == 0 else 0.9}
        for i in range(60)
    ]  # fmt: skip
    (tmp_path / "pair.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return ("--answers", "small=pair.jsonl", "--answers", "large=pair.jsonl", "--slow", "large",
            "--map", "text=outputs.{model}", "--map", "small:mean_probability=sure")  # fmt: skip


def test_a_table_of_two_models_is_imported_and_summarised(odar, provider, pair, tmp_path):
    result = odar("eval", "import", *pair, "--out", "pair.jsonl.gz", "--price", "small=1,2")
    assert result.code == 0
    assert "60 questions, fast small, slow large; gains are against one slow call" in result.out
    names = ("cascade", "cascade:dial=economy", "paper", "single-fast", "single-slow", "oracle")
    assert all(name in result.out for name in names)
    assert "APGR of the belief" in result.out and "prices are nominal" in result.out
    assert "the price of large is unknown; set it with --price large=IN,OUT" in result.err
    assert "answers of small have no token counts" in result.err and "price of small" not in result.err
    assert provider.requests == []  # no call is made
    items = list(open_recording(tmp_path / "pair.jsonl.gz").items())
    assert [len(item.attempts) for item in items] == [2] * 60
    body = json.loads(odar("eval", "import", *pair, "--json").out)
    rows = {row["name"]: row for row in body["rows"]}
    assert rows["single-fast"]["accuracy"]["value"] == pytest.approx(40 / 60)
    assert rows["single-slow"]["accuracy"]["value"] == pytest.approx(54 / 60)
    assert rows["single-slow"]["gain"] is None
    assert body["apgr"] > 0.6  # unsure answers are escalated first


def test_a_second_model_can_be_imported(odar, provider, pair, tmp_path):
    third = ("--answers", "other=pair.jsonl", "--map", "other:text=outputs.large", "--second", "other")
    result = odar("eval", "import", *pair, *third, "--fast", "small", "--out", "three.jsonl")
    assert result.code == 0 and "fast small, second other, slow large" in result.out
    items = list(open_recording(tmp_path / "three.jsonl").items())
    assert [each.agent for each in items[0].attempts] == ["fast", "second", "slow"]
    shown = odar("eval", "replay", "three.jsonl", "--policy", "second", "--policy", "fast,second,slow")
    assert shown.code == 0 and "fast,second,slow" in shown.out


def test_the_table_fits_80_columns_with_models_of_the_users_own(odar, provider, pair, tmp_path, monkeypatch):
    (tmp_path / "odar.toml").write_text("[fast]\nmodel = 'gpt-4.1-nano'\n[slow]\nmodel = 'gpt-4.1'\n")
    result = odar("eval", "import", *pair, "--price", "small=1,2")
    assert result.code == 0, result.err
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    narrow = re.sub(r"\x1b\[[0-9;]*m", "", odar("eval", "import", *pair, "--price", "small=1,2").out).splitlines()
    table = [line for line in narrow if line.startswith(("cascade", "paper", "single", "oracle", "policy"))]
    assert len(table) >= 8 and max(map(len, table)) <= 80


def test_batch_output_is_joined_with_its_questions(odar):
    batch, questions = str(FILES / "openai_batch.jsonl"), str(FILES / "questions.jsonl")
    files = ("--answers", f"a={batch}", "--answers", f"b={batch}", "--slow", "b")
    without = odar("eval", "import", *files)
    assert (without.code, "No right answers: every figure is" in without.out) == (0, True)
    result = odar("eval", "import", *files, "--questions", questions)
    assert (result.code, "6 questions" in result.out) == (0, True)


def test_invalid_options_are_named(odar, provider, pair):
    assert "write FIELD=COLUMN" in odar("eval", "import", *pair, "--map", "text").err
    for wrong in ("large=1", "large=-1,2", "large=1,nan"):
        assert f"--price {wrong}: write NAME=IN,OUT" in odar("eval", "import", *pair, "--price", wrong).err
    assert "--price huge: no such model" in odar("eval", "import", *pair, "--price", "huge=1,2").err
    assert "unknown benchmark" in odar("eval", "import", *pair, "--score-by", "none").err
    nobody = odar("eval", "import", "--answers", "none.jsonl", "--answers", FAST)
    assert (nobody.code, "none.jsonl: no such file" in nobody.err) == (2, True)


def test_graded_results_can_be_imported_and_reported(odar, provider, tmp_path):
    names = [f"a__b-{i}" for i in range(12)]
    for model, count in (("small", 3), ("large", 8)):
        report = {"submitted_ids": names, "resolved_ids": names[:count]}
        (tmp_path / f"{model}.run1.json").write_text(json.dumps(report))
    tasks = [{"id": name, "question": f"Mend issue {name} of the parser."} for name in names]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
    answers = ("--answers", "small.run1.json", "--answers", "large.run1.json", "--slow", "large")
    files = (*answers, "--questions", "tasks.jsonl")
    result = odar("eval", "import", *files, "--set-name", "swe_bench", "--out", "swe.jsonl.gz")
    assert (result.code, "12 questions, fast small, slow large" in result.out) == (0, True)
    tables = json.loads(odar("eval", "report", "swe.jsonl.gz", "--json").out)[0]["tables"]
    row = tables["main"][0]
    assert (row["benchmark"], row["category"], row["items"]) == ("swe_bench", "Coding", 12)
    assert (row["single fast"], row["single slow"]) == (pytest.approx(3 / 12), pytest.approx(8 / 12))
    assert provider.requests == []


def test_one_table_holds_any_number_of_models(odar, provider, tmp_path):
    rows = [
        {"id": i, "question": f"What is {i} + {i}?", "model": model, "answer": 2 * i + (i % wrong == 0), "cost": cost,
         "gold": 2 * i}
        for i in range(40)
        for model, wrong, cost in (("mini", 2, 0.1), ("small", 3, 0.2), ("large", 10, 2.0), ("other", 4, 0.3))
    ]  # fmt: skip
    (tmp_path / "long.jsonl").write_text("\n".join(map(json.dumps, rows)))
    result = odar("eval", "import", "--answers", "long.jsonl", "--json", "--out", "long.jsonl.gz")
    body = json.loads(result.out)
    assert body["models"] == {"fast": "mini", "second": "small", "slow": "large", "other": "other"}
    found = {row["name"]: row for row in body["rows"]}
    assert found["other"]["accuracy"]["value"] == pytest.approx(30 / 40) and found["other"]["cost_usd"] == 0.3
    mixture = found["random-mixture"]  # pays for one call, to fast or to slow
    assert mixture["calls"] == 1.0 and 0.1 <= mixture["cost_usd"] <= 2.0


def test_without_right_answers_slow_is_the_reference(odar, provider, pair, tmp_path):
    result = odar("eval", "import", *pair, "--map", "gold=nothing", "--out", "pair.jsonl.gz")
    assert (result.code, "has no column 'nothing'" in result.err) == (2, True)
    rows = [json.loads(line) for line in (tmp_path / "pair.jsonl").read_text().splitlines()]
    (tmp_path / "pair.jsonl").write_text("\n".join(json.dumps({**row, "gold": None}) for row in rows))
    body = json.loads(odar("eval", "import", *pair, "--json", "--out", "pair.jsonl.gz").out)
    found = {row["name"]: row["accuracy"]["value"] for row in body["rows"]}
    assert (body["score"], found["single-slow"]) == ("same answer as slow", 1.0)
    assert found["single-fast"] == pytest.approx(sum((i % 3 == 0) == (i % 10 == 0) for i in range(60)) / 60)
    refused = odar("eval", "replay", "pair.jsonl.gz")
    assert (refused.code, "odar advise" in refused.err) == (2, True)


def test_right_answers_that_never_match_are_warned_about(odar, provider, pair, tmp_path):
    rows = [json.loads(line) for line in (tmp_path / "pair.jsonl").read_text().splitlines()]
    (tmp_path / "pair.jsonl").write_text("\n".join(json.dumps({**row, "gold": "option X"}) for row in rows))
    result = odar("eval", "import", *pair)
    assert (result.code, "no answer of any model is right, such as '1' against 'option X'" in result.err) == (
        0,
        True,
    )
