from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from bench import command
from bench_fusion import Panel, load_panel, luck, measure_group, pairs, random_groups
from bench_routing import PAIR
from load_generator import Load, Row

from odar.cli.main import main
from odar.errors import InputError
from odar.policy.rules import Votes
from support.fault_server import FaultServer

pyarrow = pytest.importorskip("pyarrow", reason="the evals extra is not installed: pip install 'odar[evals]'")
SCRIPT = str(Path(__file__).parents[2] / "scripts" / "bench.py")


@pytest.fixture
def bench(capsys):
    """Return a function that runs a subcommand and returns exit code, output and errors."""

    def run(*arguments: str) -> SimpleNamespace:
        with pytest.raises(SystemExit) as exit_:
            main(list(arguments), command, "bench.py")
        captured = capsys.readouterr()
        return SimpleNamespace(code=int(exit_.value.code or 0), out=captured.out, err=captured.err)

    return run


@pytest.fixture(autouse=True)
def every_core():
    """Restore the CPU affinity that `bench.py difficulty` changes."""
    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    yield
    if before is not None:
        os.sched_setaffinity(0, before)


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)))


def test_difficulty_reports_speed_and_time_by_step(bench, tmp_path):
    write(tmp_path / "gsm8k" / "test.jsonl", [{"question": f"Ann has {n} apples. How many?"} for n in range(20)])
    body = json.loads(bench("difficulty", "--data", str(tmp_path), "--json").out)
    assert body["queries"] == 20
    assert body["parsed_estimates_per_s"] > 0 and body["estimates_per_s"] > 0
    assert 0 <= body["parsed_share"] <= 1
    assert 0 < body["p50_ms"] <= body["p99_ms"]
    assert sum(body["share"].values()) == pytest.approx(1.0)
    assert set(body["share"]) == {"parse", "lexical", "other structural", "semantic"}
    shown = bench("difficulty", "--data", str(tmp_path)).out
    assert shown.startswith("20 queries, one core, CPU time, load ")
    assert "all parsed   parse " in shown


@pytest.mark.parametrize("text", [None, "{", "[]", '{"query": "x"}', "[" * 9000])
def test_difficulty_names_a_file_it_cannot_use(bench, tmp_path, text):
    if text is not None:
        (tmp_path / "gsm8k").mkdir()
        (tmp_path / "gsm8k" / "test.jsonl").write_text(text)
    result = bench("difficulty", "--data", str(tmp_path))
    assert (result.code, "gsm8k/test.jsonl cannot be read" in result.err) == (2, True)


@pytest.fixture
def routing_data(tmp_path):
    """Small versions of both sets."""
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


def test_routing_compares_every_router_on_both_sets(bench, routing_data):
    rows = json.loads(bench("routing", "--data", str(routing_data), "--json").out)
    assert {row["data"] for row in rows} == {"routellm_gsm8k", f"{PAIR[0]} → {PAIR[1]}"}
    assert {"random", "length", "learned/3", "oracle"} <= {row["router"] for row in rows}
    assert sum(row["router"].startswith("posterior") for row in rows) == 2  # zero-shot and calibrated
    shown = bench("routing", "--data", str(routing_data)).out
    assert "APGR [95%]" in shown
    assert "routellm_gsm8k" in shown


def test_fusion_compares_the_rules_on_groups_and_pairs(bench, folder):
    arguments = ("fusion", "--data", str(folder), "--groups", "2", "--pairs", "2")
    body = json.loads(bench(*arguments, "--json").out)
    assert {kind: len(found) for kind, found in body.items()} == {"groups": 2, "pairs": 2}
    shown = bench(*arguments).out
    assert "plain: the better of best and majority" in shown
    assert "2 pairs, in hindsight: worst" in shown
    assert "2 pairs, by luck: worst" in shown


def test_gateway_marks_unknown_figures(bench, monkeypatch):
    asked = {}

    def run(peers, **options):
        asked.update(options, peers=peers)
        options["note"]("odar at http://127.0.0.1:1")
        known = Load(1, 100, 0, 512.3, 1.5, 9.25, 1.27, 0.75)
        return [Row("odar", (known,), 81.6), Row("peer", (Load(32, 10, 3, 7.0, 3.0, 4.0),), None)]

    monkeypatch.setattr("bench.run", run)
    monkeypatch.setenv("PEER", "sk-peer")
    result = bench(*("gateway", "--peer", "peer=http://h/v1/", "--peer-key-env", "PEER", "--connections", "1,32"))
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
def test_gateway_rejects_invalid_arguments(bench, arguments, message):
    result = bench("gateway", *arguments)
    assert (result.code, message in result.err) == (2, True)


async def test_gateway_and_peer_are_measured_in_one_run():
    async with FaultServer() as peer:
        arguments = ["--seconds", "0.3", "--connections", "1,4", "--peer", f"other={peer.url}", "--json"]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, SCRIPT, "gateway", *arguments), stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
    assert process.returncode == 0
    rows = json.loads(out)
    upstream, own, simple, other = rows
    assert [row["name"] for row in rows] == ["upstream", "odar", "odar-simple", "other"]
    assert all(load["errors"] == 0 and load["requests"] > 0 for row in rows for load in row["loads"])
    assert own["memory_mb"] > 10
    assert {load["calls"] for load in simple["loads"]} == {1.0}
    assert {load["calls"] for row in (upstream, other) for load in row["loads"]} == {None}
    assert other["memory_mb"] is None


@pytest.fixture
def folder(tmp_path):
    """Four models on 400 questions, in the format of the public data."""
    from pyarrow import parquet, table

    rng = np.random.default_rng(0)
    rows: dict[str, list] = {k: [] for k in ("model", "row", "correct", "mean_token_probability", "answer")}
    for model, skill in (("weak", 0.5), ("fair", 0.6), ("good", 0.8), ("silent", 0.3), ("deepseek-chat", 0.9)):
        for row in range(400):
            right = bool(rng.random() < skill)
            rows["model"].append(model)
            rows["row"].append(row)
            rows["correct"].append(right)
            rows["mean_token_probability"].append(
                None if model == "silent" else float(rng.uniform(0.5, 0.9 + right / 10))
            )
            rows["answer"].append("A" if right else "" if model == "silent" else str(rng.choice(list("BCD"))))
    (tmp_path / "mmlu_pro_outcomes").mkdir()
    parquet.write_table(table(rows), tmp_path / "mmlu_pro_outcomes" / "outcomes.parquet")
    return tmp_path


def test_the_panel_is_read(folder):
    panel = load_panel(folder)
    assert panel.models == ("fair", "good", "silent", "weak")
    assert len(panel.votes) == 400
    assert np.isnan(panel.votes.energy[:, 2]).all()
    assert panel.votes.correct[:, 1].mean() == pytest.approx(0.8, abs=0.06)


def test_the_fitted_rule_is_no_worse_than_the_plain_one(folder):
    panel = load_panel(folder)
    result = measure_group(panel, [0, 1, 2, 3], seed=0)
    assert result.margin > -0.005
    assert result.plain == pytest.approx(max(result.best_single, result.majority))  # no fold chooses another
    assert result.hindsight_margin == pytest.approx(result.margin)
    assert result.fitted <= result.oracle
    assert result.models == panel.models


def test_groups_and_pairs_are_reproducible(folder):
    panel = load_panel(folder)
    assert list(random_groups(panel, 3, 1)) == list(random_groups(panel, 3, 1))
    assert len(pairs(panel, None, 0)) == 6
    assert len(set(pairs(panel, 3, 0))) == 3


def test_missing_data_is_named(tmp_path):
    with pytest.raises(InputError, match=r"outcomes\.parquet cannot be read"):
        load_panel(tmp_path)


def test_choosing_between_equal_models_on_other_folds_costs_accuracy(folder):
    """Two models are right equally often on different questions, so the plain rule also chooses badly."""
    votes = load_panel(folder).votes
    right = np.arange(len(votes)) % 2 == 0
    correct = np.stack([right, ~right], axis=1)
    energy = np.full(correct.shape, np.nan)  # nothing tells who is right
    equals = Panel(("a", "b"), Votes(energy, np.tile([0, 1], (len(votes), 1)), correct))
    result = measure_group(equals, [0, 1], seed=0)
    assert result.best_single == 0.5
    assert result.hindsight_margin <= 0
    assert result.margin == 0


def equals(seed, n=2000, lead=0.0):
    """Return two models with uninformative energies; one is better by `lead`."""
    rng = np.random.default_rng(seed)
    correct = rng.random((n, 2)) < np.array([0.5, 0.5 + lead])
    groups = np.where(correct, 0, [1, 2])
    return Votes(rng.normal(size=(n, 2)), groups, correct)


def test_choosing_between_equal_models_has_a_negative_margin():
    margins = luck(equals(0), seed=1, draws=200)
    assert margins.max() <= 0.02
    assert -0.02 < margins.mean() < -0.002
    assert (margins < -0.005).mean() > 0.2


def test_choosing_between_unequal_models_has_no_margin():
    margins = luck(equals(0, lead=0.3), seed=1, draws=50)
    assert margins.mean() == pytest.approx(0, abs=0.002)


def test_the_margin_of_equal_models_matches_its_expectation():
    """The expectation for two equal models is E|D|/2, where the lead D has variance m."""
    correct = np.repeat([[True, False], [False, True], [True, True]], 500, axis=0)
    votes = Votes(
        np.tile([[0.0, 1.0]], (1500, 1)), np.where(correct, 0, [1, 2]), correct
    )  # a vote is the first model
    expected = -np.sqrt(2 * 1000 / np.pi) / 2 / 1500
    assert luck(votes, seed=0, draws=1000).mean() == pytest.approx(expected, rel=0.1)
