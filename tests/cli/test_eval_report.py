from __future__ import annotations

import json

import pytest

from support.panels import handmade_panel


def test_a_missing_panel_is_an_error(odar, tmp_path):
    result = odar("eval", "report", str(tmp_path / "recording.jsonl"))
    assert (result.code, "no such recording" in result.err) == (2, True)


def test_a_damaged_panel_is_named(odar, tmp_path):
    (tmp_path / "recording.jsonl").write_bytes(b"something else")
    for command in ("report", "replay"):
        result = odar("eval", command, str(tmp_path / "recording.jsonl"))
        assert (result.code, result.out) == (2, "")
        assert "recording.jsonl is not a recording" in result.err


FLAT = [0.2] * 7
PANELS = {
    "one item": [["4"] * 7],
    "one item, wrong": [["5"] * 7],
    "everything right": [["4"] * 7] * 8,
    "everything wrong": [["5"] * 7] * 8,
    "the fast one is better": [["4", *["5"] * 6]] * 6,
}


@pytest.mark.parametrize("answers", PANELS.values(), ids=PANELS)
def test_uninformative_panels_can_be_replayed(odar, tmp_path, answers):
    handmade_panel(tmp_path, answers, [FLAT] * len(answers))
    rows = json.loads(
        odar("eval", "replay", str(tmp_path / "recording.jsonl"), "--policy", "baselines", "--json").out
    )
    right = [row.count("4") > 0 for row in answers]
    oracle = next(row for row in rows if row["name"] == "oracle")
    assert oracle["accuracy"]["value"] == sum(right) / len(right)
    assert all(row["gain"]["p"] is None for row in rows if row["gain"])  # too few items for a test
    result = odar(
        "eval",
        "compare",
        f"{tmp_path}/recording.jsonl#single-fast",
        f"{tmp_path}/recording.jsonl#single-slow",
        "--json",
    )
    found = json.loads(result.out)
    assert (found["items"], found["left_out"]) == (len(answers), [0, 0])
    assert found["only_first_right"] == sum(row[0] == "4" != row[2] for row in answers)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (PANELS["the fast one is better"], "there is no gap that a router could recover"),
        ([["5", *["4"] * 6]], "Router quality cannot be measured here: "),
    ],
)
def test_a_report_names_what_cannot_be_measured(odar, tmp_path, answers, said):
    handmade_panel(tmp_path, answers, [FLAT] * len(answers))
    page = tmp_path / "r.html"
    assert odar("eval", "report", str(tmp_path / "recording.jsonl"), "--out", str(page)).code == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert said in page.read_text(encoding="utf-8")


def test_an_unwritable_output_is_a_one_line_error(odar, tmp_path):
    handmade_panel(tmp_path, PANELS["one item"], [FLAT])
    (tmp_path / "file").write_text("")
    recording, out = str(tmp_path / "recording.jsonl"), str(tmp_path / "file" / "r.html")
    result = odar("eval", "report", recording, "--out", out)
    assert result.code == 2
    assert result.err.startswith("odar: the report cannot be written: ")
    assert len(result.err.strip().splitlines()) == 1


def test_an_unknown_policy_gets_a_suggestion(odar, tmp_path):
    handmade_panel(tmp_path, PANELS["one item"], [FLAT])
    for arguments in (("--policy", "odr"), ("--against", "odr")):
        result = odar("eval", "replay", str(tmp_path / "recording.jsonl"), *arguments)
        assert (result.code, "did you mean 'odar'" in result.err) == (2, True)
