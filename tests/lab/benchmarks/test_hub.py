"""The huggingface_hub client with a hub server on this machine."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pyarrow
from pyarrow import parquet

from lab.benchmarks.rows import SAMPLES
from support.hub_server import hub_server

LOAD = """
import sys
from odar.errors import InputError
from odar.lab.benchmarks.base import BENCHMARKS
for name in sys.argv[1:]:
    try:
        tasks = list(BENCHMARKS[name].load())
        print(name, len(tasks), tasks[0].query.text.split("\\n")[0])
    except InputError as error:
        print(name, "refused:", error)
"""


def packed(rows: list) -> bytes:
    out = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows), out)
    return out.getvalue()


def load(tmp_path, address: str, *names: str) -> list[str]:
    """Load benchmarks in a new process, because the client reads its settings at import."""
    environment = {
        "HF_ENDPOINT": address,
        "HF_HOME": str(tmp_path / "cache"),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }
    command = [sys.executable, "-c", LOAD, *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=100)
    return done.stdout.splitlines()


def test_downloads_are_cached_and_gated_or_missing_sets_are_errors(tmp_path):
    datasets = {
        ("openai/gsm8k", "refs/convert/parquet"): {
            "main/test/0000.parquet": packed(SAMPLES["gsm8k"].files["main/test/0000.parquet"]),
            "main/train/0000.parquet": b"not wanted, and not Parquet either",
        },
        ("Idavidrein/gpqa", "main"): {"gpqa_main.csv": b"Question\n"},
        ("google/boolq", "main"): {"README.md": b""},
    }
    names = ("gsm8k", "gpqa", "boolq", "openbookqa")
    with hub_server(datasets, gated=("Idavidrein/gpqa",)) as address:
        gsm8k, gpqa, boolq, openbookqa = load(tmp_path, address, *names)
    assert gsm8k == "gsm8k 1 How many eggs?"
    assert "Idavidrein/gpqa cannot be downloaded (GatedRepoError): accept its terms" in gpqa and "HF_TOKEN" in gpqa
    assert "google/boolq cannot be downloaded (RevisionNotFoundError): " in boolq
    assert "hf download google/boolq" in boolq
    assert "allenai/openbookqa cannot be downloaded (RepositoryNotFoundError)" in openbookqa
    # the hub is gone: what was fetched is still there, the rest is said to be out of reach
    gsm8k, boolq = load(tmp_path, address, "gsm8k", "boolq")
    assert gsm8k == "gsm8k 1 How many eggs?"
    assert "google/boolq cannot be downloaded (LocalEntryNotFoundError)" in boolq
