from __future__ import annotations

import json

import pytest


def test_the_score_can_be_read_off(odar, provider):
    result = odar("difficulty", "Derive the time-dependent Schrödinger equation.")
    assert result.code == 0
    assert "path        hard" in result.out
    assert "is_proof" in result.out
    assert max(map(len, result.out.splitlines())) <= 80


def test_contributions_sum_to_the_logit(odar, provider):
    import math

    from odar.difficulty.estimator import shipped_estimator

    body = json.loads(odar("difficulty", "--json", "Who wrote Hamlet?").out)
    assert len(body["features"]) == 24
    logit = sum(each["contribution"] for each in body["features"].values()) + float(shipped_estimator().bias_)
    assert 1 / (1 + math.exp(-logit)) == pytest.approx(body["difficulty"])
    assert body["path"] == "simple"


def test_many_at_once(odar, provider, tmp_path):
    (tmp_path / "q.jsonl").write_text('{"query": "Hi"}\n\n{"query": "Prove it."}\n')
    lines = odar("difficulty", "--file", "q.jsonl", "--json").out.strip().split("\n")
    assert [json.loads(line)["query"] for line in lines] == ["Hi", "Prove it."]
    assert len(odar("difficulty", "--file", "q.jsonl").out.strip().split("\n")) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["difficulty"], "give a query or --file"),
        (["difficulty", "x", "--file", "y"], "give a query or --file"),
        (["difficulty", "--file", "none.jsonl"], "cannot be read"),
        (["difficulty", "--file", "odar.toml"], "line 2 is not a JSON object with a query"),
        (["bench", "routing", "--data", "nowhere"], "cannot be read"),
        (["bench", "fusion", "--data", "nowhere"], "cannot be read"),
        (["bench", "difficulty", "--data", "nowhere"], "cannot be read"),
    ],
)
def test_bad_input_is_one_clear_line(odar, provider, arguments, message):
    result = odar(*arguments)
    assert (result.code, message in result.err) == (2, True)
    assert len(result.err.strip().splitlines()) == 1
