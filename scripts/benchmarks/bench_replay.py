"""Measure the time of a replay: twenty policies over a synthetic recording of 5,000 items, from file to figures.

python scripts/benchmarks/bench_replay.py [items]
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from odar.lab.replay.policies import run_policies
from odar.lab.replay.table import load_table
from support.panels import synthetic_panel

SPECS = (
    "paper", "single-fast", "single-slow", "self-consistency:k=3", "self-consistency:k=5", "always-medium",
    "always-hard", "random-mixture", "oracle-router", "oracle",
    *(f"cascade:dial={points}" for points in (100, 50, 25, 15, 10, 6, 3, 2, 1, 0.5)),
)  # fmt: skip


def main() -> None:
    """Measure and print."""
    items = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
    with tempfile.TemporaryDirectory() as folder:
        path = synthetic_panel(Path(folder), items)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.perf_counter()
        cpu = time.process_time()
        table = load_table(path)
        loaded = time.perf_counter()
        outcomes, left_out = run_policies(table, SPECS)
        if left_out:
            raise SystemExit(str(left_out))
        done = time.perf_counter()
        cpu = time.process_time() - cpu
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        size = path.stat().st_size / 1e6
    print(f"{items} items, {size:.1f} MB of JSON: read into a table in {loaded - started:.2f} s")
    print(
        f"{len(outcomes)} policies replayed in {done - loaded:.2f} s; {done - started:.2f} s in all, {cpu:.2f} s of CPU time"
    )
    print(f"memory at most {after / 1024:.0f} MB, {(after - before) / 1024:.0f} MB more than before")


if __name__ == "__main__":
    main()
