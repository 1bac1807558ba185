from __future__ import annotations

import json
import os

import numpy as np
import pytest

from evals.test_fusion_bench import folder as fusion_data
from odar.evals.routing_bench import PAIR
from odar.gateway.bench.load import Load
from odar.gateway.bench.run import Row

__all__ = ["fusion_data"]


@pytest.fixture(autouse=True)
def every_core():
    """`odar bench difficulty` keeps its process to one core: ours shall have all of them again."""
    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    yield
    if before is not None:
        os.sched_setaffinity(0, before)


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)))


def test_difficulty_says_how_fast_and_where_the_time_goes(odar, tmp_path):
    write(tmp_path / "gsm8k" / "test.jsonl", [{"question": f"Ann has {n} apples. How many?"} for n in range(20)])
    body = json.loads(odar("bench", "difficulty", "--data", str(tmp_path), "--json").out)
    assert body["queries"] == 20
    assert body["parsed_estimates_per_s"] > 10 and body["estimates_per_s"] > 10
    assert 0 <= body["parsed_share"] <= 1
    assert 0 < body["p50_ms"] <= body["p99_ms"]
    assert sum(body["share"].values()) == pytest.approx(1.0)
    assert set(body["share"]) == {"parse", "lexical", "other structural", "semantic"}
    shown = odar("bench", "difficulty", "--data", str(tmp_path)).out
    assert shown.startswith("20 queries, one core, CPU time, load ")
    assert "all parsed   parse " in shown


@pytest.mark.parametrize("text", [None, "{", "[]", '{"query": "x"}', "[" * 9000])
def test_difficulty_names_a_file_it_cannot_use(odar, tmp_path, text):
    if text is not None:
        (tmp_path / "gsm8k").mkdir()
        (tmp_path / "gsm8k" / "test.jsonl").write_text(text)
    result = odar("bench", "difficulty", "--data", str(tmp_path))
    assert (result.code, "gsm8k/test.jsonl cannot be read" in result.err) == (2, True)


@pytest.fixture
def routing_data(tmp_path):
    """Both sets, in small."""
    from pyarrow import parquet, table

    rng = np.random.default_rng(0)
    prompts = [f"What is {n} plus {'one ' * (n % 7)}?" for n in range(80)]
    outcomes = [
        {"prompt": p, "weak_correct": bool(rng.random() < 0.5), "strong_correct": True, "contaminated": False}
        for p in prompts
    ]
    write(tmp_path / "routellm_gsm8k" / "outcomes.jsonl", outcomes)
    place = tmp_path / "mmlu_pro_outcomes"
    write(place / "items.jsonl", [{"row": n, "question": p, "options": ["x", "y"]} for n, p in enumerate(prompts)])
    rows = {key: [] for key in ("model", "row", "correct", "mean_token_probability", "response_tokens", "answer")}
    for model in PAIR:
        for n in range(80):
            right = model == PAIR[1] or bool(rng.random() < 0.5)
            for key, value in zip(rows, (model, n, right, 0.6 + 0.3 * right, 5.0 + n, "A"), strict=True):
                rows[key].append(value)
    parquet.write_table(table(rows), place / "outcomes.parquet")
    return tmp_path


def test_routing_compares_every_router_on_both_sets(odar, routing_data):
    rows = json.loads(odar("bench", "routing", "--data", str(routing_data), "--json").out)
    assert {row["data"] for row in rows} == {"routellm_gsm8k", f"{PAIR[0]} → {PAIR[1]}"}
    assert {"random", "length", "learned/3", "oracle"} <= {row["router"] for row in rows}
    assert sum(row["router"].startswith("posterior") for row in rows) == 2  # zero-shot and calibrated
    shown = odar("bench", "routing", "--data", str(routing_data)).out
    assert "APGR [95%]" in shown
    assert "routellm_gsm8k" in shown


def test_fusion_compares_the_rules_on_groups_and_pairs(odar, fusion_data):
    arguments = ("bench", "fusion", "--data", str(fusion_data), "--groups", "2", "--pairs", "2")
    body = json.loads(odar(*arguments, "--json").out)
    assert {kind: len(found) for kind, found in body.items()} == {"groups": 2, "pairs": 2}
    shown = odar(*arguments).out
    assert "plain: the better of best and majority" in shown
    assert "2 pairs, in hindsight: worst" in shown


def test_gateway_shows_what_is_known_and_says_what_is_not(odar, monkeypatch):
    asked = {}

    def run(peers, **options):
        asked.update(options, peers=peers)
        options["note"]("odar at http://127.0.0.1:1")
        known = Load(1, 100, 0, 512.3, 1.5, 9.25, 1.27, 0.75)
        return [Row("odar", (known,), 81.6), Row("peer", (Load(32, 10, 3, 7.0, 3.0, 4.0),), None)]

    monkeypatch.setattr("odar.gateway.bench.run.run", run)
    monkeypatch.setenv("PEER", "sk-peer")
    result = odar(
        *("bench", "gateway", "--peer", "peer=http://h/v1/", "--peer-key-env", "PEER", "--connections", "1,32")
    )
    own, peer = (line.split() for line in result.out.splitlines()[1:])
    assert own == ["odar", "1", "512", "1.50", "9.25", "1.27", "0.75", "0", "82"]
    assert peer == ["peer", "32", "7", "3.00", "4.00", "unknown", "unknown", "3", "unknown"]
    assert (asked["connections"], asked["peers"], asked["peer_key"]) == (
        [1, 32],
        {"peer": "http://h/v1"},
        "sk-peer",
    )
    assert "odar: measuring odar at http://127.0.0.1:1" in result.err
    assert "sk-peer" not in result.out + result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--peer", "http://h"), "--peer 'http://h' is not NAME=http://…"),
        (("--peer", "a=ftp://h"), "--peer 'a=ftp://h' is not NAME=http://…"),
        (("--peer", "=http://h"), "--peer '=http://h' is not NAME=http://…"),
        (("--connections", "1,x"), "--connections '1,x' is not a list of whole numbers"),
        (("--connections", "0"), "--connections '0' is not a list of whole numbers of at least 1"),
        (("--connections", "8,-3"), "--connections '8,-3' is not a list of whole numbers of at least 1"),
        (("--connections", ""), "--connections '' is not a list"),
    ],
)
def test_gateway_refuses_what_it_cannot_measure(odar, arguments, message):
    result = odar("bench", "gateway", *arguments)
    assert (result.code, message in result.err) == (2, True)
