from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from odar.recording.files import open_recording

FILES = Path(__file__).parents[1] / "recording" / "files"
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
    return ("--fast", "pair.jsonl", "--slow", "pair.jsonl", "--map", "text=outputs.{model}",
            "--fast-map", "mean_probability=sure", "--fast-model", "small", "--slow-model", "large")  # fmt: skip


def test_a_table_of_two_models_is_imported_and_summarised(odar, provider, pair, tmp_path):
    result = odar("eval", "import", *pair, "--out", "pair.jsonl.gz", "--fast-price", "1,2")
    assert result.code == 0
    assert "60 questions, fast small, slow large" in result.out
    names = ("cascade", "cascade:dial=economy", "paper", "single-fast", "single-slow", "oracle")
    assert all(name in result.out for name in names)
    assert "APGR of the belief" in result.out and "prices are nominal" in result.out
    assert provider.requests == []  # no call is made
    items = list(open_recording(tmp_path / "pair.jsonl.gz").items())
    assert [len(item.attempts) for item in items] == [2] * 60
    body = json.loads(odar("eval", "import", *pair, "--json").out)
    rows = {row["name"]: row for row in body["rows"]}
    assert rows["single-fast"]["accuracy"]["value"] == pytest.approx(40 / 60)
    assert rows["single-slow"]["accuracy"]["value"] == pytest.approx(54 / 60)
    assert body["apgr"] > 0.6  # unsure answers are escalated first


def test_a_second_model_can_be_imported(odar, provider, pair, tmp_path):
    result = odar(
        "eval", "import", *pair, "--second", "pair.jsonl", "--second-model", "large", "--out", "three.jsonl"
    )
    assert result.code == 0 and "fast small, second large, slow large" in result.out
    items = list(open_recording(tmp_path / "three.jsonl").items())
    assert [each.agent for each in items[0].attempts] == ["fast", "second", "slow"]
    shown = odar("eval", "replay", "three.jsonl", "--policy", "second", "--policy", "fast,second,slow")
    assert shown.code == 0 and "fast,second,slow" in shown.out


def test_the_table_fits_80_columns_with_models_of_the_users_own(odar, provider, pair, tmp_path, monkeypatch):
    (tmp_path / "odar.toml").write_text("[fast]\nmodel = 'gpt-4.1-nano'\n[slow]\nmodel = 'gpt-4.1'\n")
    result = odar("eval", "import", *pair, "--fast-price", "1,2")
    assert result.code == 0, result.err
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    narrow = re.sub(r"\x1b\[[0-9;]*m", "", odar("eval", "import", *pair, "--fast-price", "1,2").out).splitlines()
    table = [line for line in narrow if line.startswith(("cascade", "paper", "single", "oracle", "policy"))]
    assert len(table) >= 8 and max(map(len, table)) <= 80


def test_lm_eval_files_are_imported(odar):
    result = odar(
        "eval", "import", "--fast", FAST, "--slow", SLOW, "--fast-model", "smollm2", "--slow-model", "odar"
    )
    assert (result.code, "12 questions, fast smollm2, slow odar" in result.out) == (0, True)
    assert "the slow model is not better on these questions" in result.out


def test_batch_output_is_joined_with_its_questions(odar):
    batch, questions = str(FILES / "openai_batch.jsonl"), str(FILES / "questions.jsonl")
    without = odar("eval", "import", "--fast", batch, "--slow", batch)
    assert (without.code, "or give --questions" in without.err) == (2, True)
    result = odar("eval", "import", "--fast", batch, "--slow", batch, "--questions", questions)
    assert (result.code, "6 questions" in result.out) == (0, True)


def test_invalid_options_are_named(odar, provider, pair):
    assert "write FIELD=COLUMN" in odar("eval", "import", *pair, "--map", "text").err
    assert "write two numbers" in odar("eval", "import", *pair, "--slow-price", "1").err
    assert "unknown benchmark" in odar("eval", "import", *pair, "--score-by", "none").err
    nobody = odar("eval", "import", "--fast", "none.jsonl", "--slow", FAST)
    assert (nobody.code, "none.jsonl: no such file" in nobody.err) == (2, True)


def test_graded_results_can_be_imported_and_reported(odar, provider, tmp_path):
    names = [f"a__b-{i}" for i in range(12)]
    for model, count in (("small", 3), ("large", 8)):
        report = {"submitted_ids": names, "resolved_ids": names[:count]}
        (tmp_path / f"{model}.run1.json").write_text(json.dumps(report))
    tasks = [{"id": name, "question": f"Mend issue {name} of the parser."} for name in names]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
    files = ("--fast", "small.run1.json", "--slow", "large.run1.json", "--questions", "tasks.jsonl")
    result = odar("eval", "import", *files, "--set-name", "swe_bench", "--out", "swe.jsonl.gz")
    assert (result.code, "12 questions, fast small, slow large" in result.out) == (0, True)
    tables = json.loads(odar("eval", "report", "swe.jsonl.gz", "--json").out)[0]["tables"]
    row = tables["main"][0]
    assert (row["benchmark"], row["category"], row["items"]) == ("swe_bench", "Coding", 12)
    assert (row["single fast"], row["single slow"]) == (pytest.approx(3 / 12), pytest.approx(8 / 12))
    assert provider.requests == []
