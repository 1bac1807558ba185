"""Targets shared by processes and kept over a restart."""

from __future__ import annotations

import json

import numpy as np
import pytest

from odar.policy.target import Target, ThresholdPath
from odar.store.targets import ServedTargets
from odar.types import Path

TARGET = Target.from_options(calls=1.8)
CALLS = (1.0, 2.0, 6.0)


def served(file=None) -> ServedTargets:
    return ServedTargets(ThresholdPath.through((0.3, 0.7)), CALLS, file)


def ask(targets: ServedTargets, d: float, scope: str = "settings", target: Target = TARGET) -> float:
    choice = targets.choose(target, scope)
    path = Path.SIMPLE if d < choice.tau1 else Path.MEDIUM if d < choice.tau2 else Path.HARD
    spent = CALLS[list(Path).index(path)]
    targets.settle(targets.book(target, scope, d, path), spent)
    return spent


def test_the_state_survives_a_restart(tmp_path):
    file, rng = tmp_path / "odar.targets.json", np.random.default_rng(0)
    first = served(file)
    for d in rng.beta(1, 6, 400):
        ask(first, float(d))
    before = first.choose(TARGET).t
    first.close()
    second = served(file)
    assert second.choose(TARGET).t == pytest.approx(before, abs=0.02)
    assert served().choose(TARGET).t != pytest.approx(before, abs=0.1)  # a process without the file
    assert second.report()[0].questions == 400


def test_several_processes_meet_the_target_together(tmp_path):
    file, rng = tmp_path / "odar.targets.json", np.random.default_rng(1)
    processes = [served(file) for _ in range(3)]
    spent = []
    for number, d in enumerate(rng.beta(2, 3, 3000)):
        process = processes[number % 3]
        spent.append(ask(process, float(d)))
        if number % 200 == 0:
            process.sync()
    for process in processes:
        process.close()
    assert np.mean(spent[300:]) == pytest.approx(1.8, rel=0.05)
    body = json.loads(file.read_text())
    assert body["format"] == "odar-targets-1"
    (state,) = body["targets"].values()
    assert state["questions"] == 3000
    assert state["total"] == sum(spent)


def test_each_key_has_its_own_target():
    targets, other = served(), Target.from_options(calls=3.0)
    rng = np.random.default_rng(2)
    spent = {"key:a": [], "settings": []}
    for d in rng.beta(2, 3, 1000):
        spent["settings"].append(ask(targets, float(d)))
        spent["key:a"].append(ask(targets, float(d), "key:a", other))
    assert np.mean(spent["settings"][200:]) == pytest.approx(1.8, rel=0.05)
    assert np.mean(spent["key:a"][200:]) == pytest.approx(3.0, rel=0.05)
    assert [(row.scope, row.target) for row in targets.report()] == [("settings", 1.8), ("key:a", 3.0)]


def test_a_damaged_file_is_reported_and_ignored(tmp_path):
    file = tmp_path / "odar.targets.json"
    file.write_text("{")
    targets = served(file)
    ask(targets, 0.5)
    assert "damaged" in targets.last_error
    assert file.read_text() == "{"
