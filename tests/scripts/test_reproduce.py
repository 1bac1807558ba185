from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from odar.providers.weights import ensure_weights, find_weights

ROOT = Path(__file__).parents[2]


def test_one_command_goes_from_nothing_to_the_report(tmp_path):
    """`runs/reproduce.sh` with one question and one slow sample, on the tiny model."""
    if not (ROOT / ".venv/bin/odar").exists():
        pytest.skip("runs/reproduce.sh would install ODAR into .venv first")
    ensure_weights(find_weights("smollm2-135m"))
    environment = {
        **os.environ,
        "ITEMS": "1",
        "OUT": str(tmp_path),
        "ODAR_LOCAL_THREADS": "1",
        "ODAR_FAST_TIMEOUT_S": "500",
        "ODAR_SLOW_TIMEOUT_S": "500",
        "ODAR_LIMITS_DEADLINE_S": "900",
    }
    command = [ROOT / "runs/reproduce.sh", "--samples", "1", "--yes"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"{tmp_path}/report.html" in done.stdout.splitlines()[-1]
    assert "<svg" in (tmp_path / "report.html").read_text()
