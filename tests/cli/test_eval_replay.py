from __future__ import annotations

import json

import pytest

from support.panels import synthetic_panel


@pytest.fixture
def panel(tmp_path):
    (tmp_path / "p").mkdir()
    synthetic_panel(tmp_path / "p", 120)
    return str(tmp_path / "p" / "recording.jsonl")


def test_replay_shows_every_baseline_with_its_interval(odar, panel):
    result = odar("eval", "replay", panel)
    assert result.code == 0
    assert "120 items, 5 slow samples each; gains are against odar" in result.out
    for name in ("odar", "paper", "single-fast", "single-slow", "self-consistency:k=5", "random-matched", "oracle"):
        assert name in result.out


def test_replay_accepts_settings_and_prints_json(odar, panel):
    out = odar("eval", "replay", panel, "--policy", "paper:tau1=0.2,n=3", "--policy", "oracle", "--json").out
    first, second = json.loads(out)
    assert first["name"] == "paper:tau1=0.2,n=3"
    assert second["accuracy"]["value"] >= first["accuracy"]["value"]
    assert second["gain"]["p"] < 0.05
    assert sum(second["mix"]) == pytest.approx(1)
    assert second["over_fixed"]["value"] > 0
    assert first["arena_score"] is None or 0 < first["arena_score"] < 1


def test_a_policy_compared_with_itself_has_no_gain(odar, panel):
    body = json.loads(odar("eval", "compare", f"{panel}#paper", f"{panel}#paper", "--json").out)
    assert (body["interval"]["value"], body["p"], body["test"]) == (0.0, 1.0, "McNemar")
    assert (body["same_path"], body["same_path_corrected"]) == (1.0, 1.0)
    text = odar("eval", "compare", f"{panel}#odar", f"{panel}#single-fast").out
    assert "120 items in both" in text
    assert "(McNemar)" in text
    assert "items needed to show a difference" in text


def test_compare_pairs_two_panels_by_item(odar, panel, tmp_path):
    (tmp_path / "q").mkdir()
    synthetic_panel(tmp_path / "q", 60, seed=5)
    body = json.loads(odar("eval", "compare", panel, str(tmp_path / "q" / "recording.jsonl"), "--json").out)
    assert (body["items"], body["left_out"]) == (60, [60, 0])
    (tmp_path / "r").mkdir()
    synthetic_panel(tmp_path / "r", 10, benchmarks=[("other", "Coding")])
    refused = odar("eval", "compare", panel, str(tmp_path / "r" / "recording.jsonl"))
    assert (refused.code, "share no item: set, id and seed must be the same" in refused.err) == (2, True)
    assert odar("eval", "compare", panel, str(tmp_path / "q" / "recording.jsonl")).out.startswith(
        "60 items in both, 60 left out\n"
    )


def test_policies_that_the_panel_does_not_support_are_skipped(odar, tmp_path):
    synthetic_panel(tmp_path, 20, samples=2)
    result = odar(
        "eval", "replay", str(tmp_path / "recording.jsonl"), "--policy", "odar", "--policy", "best-of-n:n=9"
    )
    assert (result.code, "best-of-n:n=9 is left out" in result.err) == (0, True)


def test_the_dials_are_compared_with_slow_alone(odar, panel):
    result = odar("eval", "replay", panel, "--policy", "curve", "--policy", "fixed")
    assert result.code == 0 and "slow agent alone" in result.out.splitlines()[-1]
    assert "cascade:dial=economy" in result.out and "over fixed" in result.out
    misspelt = odar("eval", "replay", panel, "--policy", "cascade:dial=cheap")
    assert (misspelt.code, "cascade:dial=cheap is left out" in misspelt.err) == (0, True)
