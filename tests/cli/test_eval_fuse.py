from __future__ import annotations

import json

import pytest

from support.panels import samples_recording


def rows(count):
    made = {"tokens": [["So", -0.5], [" 1", -0.1]]}
    return [
        {"gold": "1", "candidates": [{**made, "answer": "1"}, {**made, "answer": str(i % 2)}]} for i in range(count)
    ]


@pytest.fixture
def recorded(tmp_path):
    def write(count):
        return str(samples_recording(tmp_path, rows(count)))

    return write


def test_every_rule_and_the_belief_are_listed(odar, recorded):
    result = odar("eval", "fuse", recorded(30), "--set", "fusion.beta=0.5")
    assert result.code == 0
    for name in (
        "fep β=0.5",
        "belief, skills fitted",
        "fep β=inf (argmin)",
        "majority",
        "deepconf",
        "mean candidate",
    ):
        assert name in result.out
    assert "skills: slow 0.75" in result.out


@pytest.mark.parametrize("count", [5, 30])
def test_json_is_one_strict_object(odar, recorded, count):
    result = odar("eval", "fuse", recorded(count), "--json")

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    body = json.loads(result.out, parse_constant=refuse)
    assert body["questions"] == count
    assert any(rule["rule"] == "belief, skills fitted" for rule in body["rules"]) == (count >= 30)
    assert {"value", "low", "high"} <= body["rules"][0]["accuracy"].keys()
