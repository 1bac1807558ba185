"""Measure the time of a replay: twenty policies over a synthetic panel of 5,000 items, from file to figures.

python scripts/bench_replay.py [items]
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from odar.evals.replay.arrays import load_arrays
from odar.evals.replay.policies import run_policies
from support.panels import synthetic_panel

SPECS = ("odar", "baselines", "fusion-rules", "odar:beta=inf", "odar:n=3")


def main() -> None:
    """Measure and print."""
    items = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
    with tempfile.TemporaryDirectory() as folder:
        path = synthetic_panel(Path(folder), items)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.perf_counter()
        arrays = load_arrays(path)
        loaded = time.perf_counter()
        count = sum(1 for _ in run_policies(arrays, SPECS))
        done = time.perf_counter()
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        size = path.stat().st_size / 1e6
    print(f"{items} items, {size:.1f} MB of Parquet: read in {loaded - started:.2f} s")
    print(f"{count} policies replayed in {done - loaded:.2f} s; {done - started:.2f} s in all")
    print(f"memory at most {after / 1024:.0f} MB, {(after - before) / 1024:.0f} MB more than before")


if __name__ == "__main__":
    main()
