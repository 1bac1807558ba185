from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.panels import samples_recording

DATA = Path(__file__).parents[2] / "docs" / "data"


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


def test_every_rule_is_listed_as_configured_and_as_fitted(odar, recorded):
    result = odar("eval", "fuse", recorded(30), "--set", "fusion.beta=0.5")
    assert result.code == 0
    for name in ("fep β=0.5", "fep fitted", "fep β=inf (argmin)", "majority", "deepconf", "mean candidate"):
        assert name in result.out
    assert "fitted on four folds, judged on the fifth" in result.out


def test_few_questions_are_not_fitted(odar, recorded):
    result = odar("eval", "fuse", recorded(5))
    assert result.code == 0
    assert "fitted" not in result.out


@pytest.mark.parametrize("count", [5, 30])
def test_json_is_one_strict_object(odar, recorded, count):
    result = odar("eval", "fuse", recorded(count), "--json")

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    body = json.loads(result.out, parse_constant=refuse)
    assert body["questions"] == count
    assert (body["fitted"] is None) == (count < 30)
    assert {"value", "low", "high"} <= body["rules"][0]["accuracy"].keys()


def test_early_stopping_loses_at_most_half_a_point_on_the_recordings(odar):
    items, lost = 0, 0.0
    for file in sorted(DATA.glob("embedded-*.jsonl.gz")):
        policies = [f"{file}#odar:tau1=0,tau2=0,stop={stop}" for stop in ("0.8", "none")]
        body = json.loads(odar("eval", "compare", *policies, "--json").out)
        early, late = body["calls"]
        assert early < 0.98 * late
        items += body["items"]
        lost -= body["items"] * body["interval"]["value"]
    assert lost <= 0.005 * items
