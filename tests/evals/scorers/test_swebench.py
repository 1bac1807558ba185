from __future__ import annotations

import json

import pytest

from odar.errors import InputError
from odar.evals.scorers.programs import Prediction, extract_patch, read_report, write_predictions

PATCH = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n"


def test_patches_in_every_dress():
    assert extract_patch(f"<patch>\n{PATCH}</patch>") == PATCH
    assert extract_patch(f"Here:\n```diff\n{PATCH}```\nDone.") == PATCH
    assert extract_patch(f"Here is the fix:\n{PATCH}") == PATCH
    assert extract_patch(f"```diff\nold\n```\n```patch\n{PATCH}```") == PATCH
    assert extract_patch("I cannot.") == ""


def test_predictions_are_what_the_harness_reads(tmp_path):
    file = tmp_path / "predictions.jsonl"
    assert write_predictions(file, "odar", [Prediction("a__b-1", PATCH), Prediction("a__b-2", "")]) == 2
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert rows[0] == {"instance_id": "a__b-1", "model_name_or_path": "odar", "model_patch": PATCH}
    assert rows[1]["model_patch"] == ""


def test_a_report_is_read(tmp_path):
    file = tmp_path / "odar.run.json"
    body = {"total_instances": 3, "submitted_ids": ["a", "b", "c"], "resolved_ids": ["b"], "empty_patch_ids": ["c"]}
    file.write_text(json.dumps(body))
    report = read_report(file)
    assert [report.passed(name) for name in "abc"] == [0.0, 1.0, 0.0]
    with pytest.raises(InputError, match="says nothing about 'd'"):
        report.passed("d")


@pytest.mark.parametrize("text", ["{}", "[]", "no json"])
def test_what_is_no_report_is_refused(tmp_path, text):
    file = tmp_path / "report.json"
    file.write_text(text)
    with pytest.raises(InputError, match="no report"):
        read_report(file)
    with pytest.raises(InputError, match="cannot be read"):
        read_report(tmp_path / "missing.json")
