"""deploy/calibrate.sh, run with the smallest model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from support.deploy_files import DEPLOY, ROOT


def run(folder: Path, odar: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [DEPLOY / "calibrate.sh", folder / "out"]
    given = {**os.environ, "ODAR": str(odar), **environment}
    return subprocess.run(command, env=given, cwd=folder, capture_output=True, text=True, check=False)


def test_statistics_of_each_model_and_step_are_measured(tmp_path):
    """Answers are those of the recording of two small models, as if it had been made here; the rest is real."""
    recording = ROOT / "runs/small-pair/recording.jsonl.gz"
    fake = tmp_path / "odar"
    real = Path(sys.executable).parent / "odar"
    fake.write_text(
        f'#!/bin/sh\n[ "$2" = collect ] && exec gunzip -c {recording} > out/recording.jsonl\nexec {real} "$@"\n'
    )
    fake.chmod(0o755)
    settings = {"ODAR_CONFIG": str(ROOT / "runs/small-pair/odar.toml"), "ODAR_ROUTING_SAMPLES": "9"}
    done = run(tmp_path, fake, SETS="starter", **settings)
    assert done.returncode == 0, done.stderr[-2000:]
    measured = json.loads((tmp_path / "out/statistics.json").read_text())["sources"]
    assert [row["model"] for row in measured] == ["smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b"]
    assert all(row["count"] >= 48 and row["deviation"] > 0 for row in measured)  # answers, verifications, solutions
    assert "μ = " in done.stdout and (tmp_path / "out/calibration.json").exists()


def test_items_are_taken_in_proportion_to_the_benchmarks(tmp_path):
    """A stand-in for `odar` writes down how it was called."""
    fake = tmp_path / "odar"
    fake.write_text('#!/bin/sh\necho "$@" >> calls\n')
    fake.chmod(0o755)
    assert run(tmp_path, fake).returncode == 0
    calls = [line.split() for line in (tmp_path / "calls").read_text().splitlines()]
    limits = {each[2]: int(each[4]) for each in calls if each[:2] == ["eval", "collect"]}
    assert limits == {
        "math": 314, "arc_challenge": 74, "boolq": 205, "mmlu_pro": 756, "bbh": 409, "truthfulqa": 51, "ifeval": 34, "hle": 157,
    }  # fmt: skip
    assert sum(limits.values()) == 2000
    assert [each[0] for each in calls[-2:]] == ["calibrate", "calibrate"]
