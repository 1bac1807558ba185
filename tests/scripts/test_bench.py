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
from bench_routing import PAIR
from load_generator import Load, Row

from odar.cli.main import main
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
    assert sum(row["router"].startswith("belief") for row in rows) == 1
    shown = bench("routing", "--data", str(routing_data)).out
    assert "APGR [95%]" in shown
    assert "routellm_gsm8k" in shown


def test_gateway_marks_unknown_figures(bench, monkeypatch):
    asked = {}

    def run(peers, **options):
        asked.update(options, peers=peers)
        options["note"]("odar at http://127.0.0.1:1")
        known = Load(1, 100, 0, 512.3, 1.5, 9.25, 1.27, 0.75)
        return [Row("odar", (known,), 81.6), Row("peer", (Load(32, 10, 3, 7.0, 3.0, 4.0),), None)]

    monkeypatch.setattr("bench.run", run)
    header = "Authorization: Bearer sk-peer"
    result = bench(*("gateway", "--peer", "peer=http://h/v1/", "--peer-header", header, "--connections", "1,32"))
    own, peer = (line.split() for line in result.out.splitlines()[1:])
    assert own == ["odar", "1", "512", "1.50", "9.25", "1.27", "0.75", "0", "82"]
    assert peer == ["peer", "32", "7", "3.00", "4.00", "unknown", "unknown", "3", "unknown"]
    assert (asked["connections"], asked["peers"], asked["peer_headers"]) == (
        [1, 32],
        {"peer": "http://h/v1"},
        (header,),
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
