"""Queries a second and p50/p99 of all 24 features on GSM8K test questions (read for their text only).

OMP_NUM_THREADS=1 taskset -c 0 python scripts/bench_features.py --data ../shared/data
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
from mixture import lines

from odar.difficulty.features import FeatureExtractor
from odar.types import Query


def main() -> None:
    """One pass to warm the caches, then the best of five over batches, and every query alone."""
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--data", type=Path, required=True)
    args = cli.parse_args()
    queries = [Query(r["question"]) for r in lines(args.data / "gsm8k" / "test.jsonl")]
    extractor = FeatureExtractor()
    start = time.perf_counter()
    extractor.phi_batch(queries)
    print(f"first pass, caches cold: {len(queries) / (time.perf_counter() - start):.0f} queries/s")
    walls, cpus = [], []
    for _ in range(5):
        wall, cpu = time.perf_counter(), time.process_time()
        extractor.phi_batch(queries)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    print(f"batch: {len(queries) / min(walls):.0f} queries/s wall, {len(queries) / min(cpus):.0f} by CPU time")
    each = []
    for query in queries:
        wall = time.perf_counter()
        extractor.phi(query)
        each.append(1e3 * (time.perf_counter() - wall))
    print(
        f"single: p50 {np.median(each):.2f} ms, p99 {np.quantile(each, 0.99):.2f} ms; load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
