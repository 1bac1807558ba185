"""scripts/fuse_unseen.py: a rule fitted to one file and tested on another."""

from __future__ import annotations

import numpy as np
import pytest

from support.panels import samples_recording
from support.scripts import script

fuse_unseen = script("fuse_unseen")


def row(number, answers, gold="7", agents=("fast", "slow", "slow")):
    """Return a question whose answers have different probabilities."""
    rng = np.random.default_rng(number)
    candidates = [
        {"model": "m", "agent": agent, "answer": answer, "tokens": [[answer, -float(rng.uniform(0.1, 2.0))]]}
        for agent, answer in zip(agents, answers, strict=True)
    ]
    return {"id": str(number), "query": "q", "gold": gold, "candidates": candidates}


def write(path, rows):
    return str(samples_recording(path.parent, rows, path.name))


@pytest.fixture
def files(tmp_path):
    """Files where the fast agent is always right and the slow samples agree on another answer."""
    seen = write(tmp_path / "seen.jsonl", [row(i, ("7", "8", "8")) for i in range(60)])
    return seen, write(tmp_path / "unseen.jsonl", [row(100 + i, ("7", "8", "8")) for i in range(20)])


def test_a_rule_fitted_to_the_first_file_decides_on_the_second(files, capsys):
    fuse_unseen.main(*files)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("20 questions; fitted to 60 others")
    figures = {line[:36].strip(): float(line[36:].split()[0]) for line in lines[3:]}
    assert figures["majority"] == 0.0
    assert figures["fitted to the first file"] == 1.0


def test_energies_are_scaled_by_the_first_file(files):
    seen, unseen = map(fuse_unseen.recorded, files)
    own = fuse_unseen.aligned(seen, seen).energy
    assert own[:, 0].mean() == pytest.approx(0, abs=1e-9)
    assert own[:, 1:].std() == pytest.approx(1)
    other = fuse_unseen.aligned(unseen, seen).energy
    assert other[:, 0] == pytest.approx((unseen.energy[:, 0] - seen.energy[:, 0].mean()) / seen.energy[:, 0].std())
    together = fuse_unseen.aligned(unseen, seen, by_agent=False).energy
    order = np.argsort(together.ravel())
    assert (order == np.argsort(unseen.energy.ravel())).all()  # one scale changes no order


def test_samples_in_another_order_are_rejected(tmp_path):
    path = write(tmp_path / "odd.jsonl", [row(0, ("7", "8", "8"), agents=("slow", "slow", "slow"))])
    with pytest.raises(SystemExit, match="question 1: one fast answer, then slow ones"):
        fuse_unseen.recorded(path)
