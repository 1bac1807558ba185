"""scripts/benchmarks/everyday.py: the set, the stub models and a run through `odar serve`."""

from __future__ import annotations

import json
import subprocess
import sys

import everyday  # scripts is on the path

ITEMS = [json.loads(line) for line in everyday.SET.read_text("utf-8").splitlines()]


def test_the_set_is_as_described():
    exact = [item for item in ITEMS if item["answer"] is not None]
    assert len(ITEMS) >= 60
    assert len({item["kind"] for item in ITEMS}) >= 8
    assert len({item["prompt"] for item in ITEMS}) == len(ITEMS)
    assert 0.6 <= sum(item["fast"]["right"] for item in exact) / len(exact) <= 0.7
    assert 0.85 <= sum(item["slow"]["right"] for item in exact) / len(exact) <= 0.95


def test_the_set_costs_less_than_always_slow_and_open_ended_requests_take_one_call():
    done = subprocess.run(
        [sys.executable, everyday.__file__, "--json"], capture_output=True, text=True, timeout=300
    )
    tables = json.loads(done.stdout)
    assert list(tables) == ["price ratio 3", "price ratio 10", "price ratio 20"]
    for table in tables.values():
        rows = {row["kind"]: row for row in table}
        assert rows["all"]["prompts"] == len(ITEMS)
        assert rows["open-ended"]["most_calls"] == 1
        assert rows["open-ended"]["simple"] > 0 and rows["open-ended"]["medium"] > 0
        assert 0 < rows["all"]["cost_usd"] < rows["all"]["slow_cost_usd"]
    assert done.returncode == 0
