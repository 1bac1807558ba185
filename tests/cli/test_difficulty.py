from __future__ import annotations

import json

import numpy as np
import pytest


def test_difficulty_shows_score_path_and_contributions(odar, provider):
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
    logit = sum(each["contribution"] for each in body["features"].values()) + float(shipped_estimator().bias)
    raw, mapped = zip(*shipped_estimator().map, strict=True)
    assert np.interp(1 / (1 + math.exp(-logit)), raw, mapped) == pytest.approx(body["difficulty"])
    assert body["path"] == "simple"


def test_a_file_of_questions(odar, provider, tmp_path):
    (tmp_path / "q.jsonl").write_text('{"query": "Hi"}\n\n{"query": "Prove it."}\n')
    lines = odar("difficulty", "--file", "q.jsonl", "--json").out.strip().split("\n")
    assert [json.loads(line)["query"] for line in lines] == ["Hi", "Prove it."]
    assert len(odar("difficulty", "--file", "q.jsonl").out.strip().split("\n")) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["difficulty"], "give a query or --file"),
        (["difficulty", "x", "--file", "y"], "give a query or --file"),
        (["difficulty", " \n"], "the question is empty"),
        (["difficulty", "--file", "none.jsonl"], "cannot be read"),
        (["difficulty", "--file", "odar.toml"], "line 2 and 8 more: "),
    ],
)
def test_invalid_input_is_a_one_line_error(odar, provider, arguments, message):
    result = odar(*arguments)
    assert (result.code, message in result.err) == (2, True)
    assert len(result.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "command",
    [("difficulty", "--file"), ("train",), ("calibrate",), ("eval", "collect", "--out", "x.jsonl")],
)
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"query": "a \\ud800", "answer": "b", "correct": 1}', "unpaired surrogate"),
        ('{"query": "a\\u0000", "answer": "b", "correct": 1}', "NUL character at position 1"),
        (
            '{"query": "a", "image": "none.png", "answer": "b", "correct": 1}',
            "none.png' cannot be read: No such file",
        ),
    ],
    ids=["surrogate", "NUL", "no picture"],
)
def test_an_invalid_line_is_named_before_any_download(odar, tmp_path, monkeypatch, command, line, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.jsonl").write_text('{"query": "Hi", "answer": "b", "correct": 1}\n' + line)
    result = odar(*command, "q.jsonl")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("odar: q.jsonl: line 2: ")
    assert message in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_a_long_query_is_shortened_in_a_list(odar, tmp_path):
    (tmp_path / "q.jsonl").write_text(json.dumps({"query": "word " * 100}) + "\n" + json.dumps({"query": "a\n b"}))
    long, short = odar("difficulty", "--file", str(tmp_path / "q.jsonl")).out.splitlines()
    assert len(long) <= 80 and long.endswith("…")
    assert short.endswith("  a b")


def test_an_estimator_without_features_shows_only_its_score(odar, provider):
    result = odar("difficulty", "--set", "routing.estimator=constant", "Who wrote Hamlet?")
    assert [line.split()[0] for line in result.out.splitlines()] == ["difficulty", "path", "expert"]
