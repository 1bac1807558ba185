"""`odar train`."""

from __future__ import annotations

import json

import pytest

LONG = "A tram leaves town at noon and another follows it an hour later at twice the speed, stopping on the way. "


def rows(count: int, *, inverted: bool = False) -> str:
    """Return rows whose long queries are hard; if inverted, they are easy and the shipped estimator is wrong."""
    lines = []
    for n in range(count):
        hard = n % 2 == 1
        text = (
            LONG * (1 + n % 5) + f"When do the {n} meet, and where?" if hard else f"What is the name of city {n}?"
        )
        lines.append(json.dumps({"query": text, "difficulty": 0.85 if hard != inverted else 0.1}))
    return "\n".join(lines)


@pytest.fixture
def data(tmp_path, provider):
    (tmp_path / "data.jsonl").write_text(rows(60, inverted=True))
    (tmp_path / "few.jsonl").write_text(rows(20))
    return "data.jsonl"


def test_a_trained_estimator_is_reported_and_used(odar, data, tmp_path):
    result = odar("train", data)
    assert result.code == 0, result.err
    assert "60 rows" in result.out and "written to estimator.json" in result.out
    assert max(map(len, result.out.splitlines())) <= 90
    short, long = "What is the name of city 99?", LONG * 3
    for text, side in ((short, 0), (long, 1)):
        body = json.loads(odar("difficulty", "--json", "--set", "routing.estimator=estimator.json", text).out)
        assert body["estimator"] == "learned/3 (estimator.json)"
        shipped = json.loads(odar("difficulty", "--json", text).out)["difficulty"]
        assert (body["difficulty"] > shipped) if side == 0 else (body["difficulty"] < shipped)


def test_the_json_report(odar, data, tmp_path):
    result = odar("train", data, "--out", "mine.json", "--json")
    body = json.loads(result.out)
    assert body["rows"] == 60 and body["written"] == "mine.json"
    assert body["after"]["r"][0] > 0.5 > body["before"]["r"][0]
    assert body["after"]["mse"] < body["before"]["mse"]
    saved = json.loads((tmp_path / "mine.json").read_text())
    assert saved["about"]["rows"] == 60
    assert not (tmp_path / "mine.json.part").exists()


def test_a_worse_estimator_is_not_written(odar, provider, tmp_path):
    import random

    from odar.difficulty.estimator import shipped_estimator
    from odar.types import Query

    texts = [json.loads(line)["query"] for line in rows(40).split("\n")]
    known = [shipped_estimator().estimate(Query(text)).difficulty for text in texts]
    lines = [json.dumps({"query": t, "difficulty": d}) for t, d in zip(texts, known, strict=True)]
    random.Random(1).shuffle(lines)
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    arguments = ("train", "data.jsonl")
    result = odar(*arguments)
    assert result.code == 1 and "not written" in result.err
    assert not (tmp_path / "estimator.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["few.jsonl"], "20 rows cannot teach an estimator; at least 40"),
        (["none.jsonl"], "cannot be read"),
        (["odar.toml"], "odar.toml: line 2 and 8 more: is not JSON"),
        (["data.jsonl", "--out", "estimator.txt"], "must end in .json"),
        (["data.jsonl", "--out", "no/such/e.json"], "cannot be written"),
    ],
)
def test_invalid_input_is_a_one_line_error(odar, data, arguments, message):
    result = odar("train", *arguments)
    assert (result.code, message in result.err) == (2, True), result.err
    assert len(result.err.strip().splitlines()) == 1


def test_an_estimator_of_another_version_is_rejected(odar, data, tmp_path):
    (tmp_path / "old.json").write_text('{"format": "odar-estimator/1"}')
    result = odar("difficulty", "--set", "routing.estimator=old.json", "Hi")
    assert result.code == 2 and "odar-estimator/1" in result.err and "odar train" in result.err
