"""What the 24 features cost on a machine that is not idle, and on long texts.

    OPENBLAS_NUM_THREADS=1 taskset -c 0 python scripts/bench_features.py --data ../shared/data

`odar bench difficulty` gives queries a second and percentiles, and wants an idle machine. Here each GSM8K test question
(read for its text only) is timed --repeat times and the best counts: what the work itself takes, interruptions left
out. To compare two versions, run both in turn, with PYTHONPATH set to the sources of each.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from mixture import lines

from odar.difficulty.estimator import LearnedEstimator
from odar.policy.experts import route_expert
from odar.types import Query


def best(work: Callable[[Query], object], queries: list[Query], repeat: int) -> np.ndarray:
    """Milliseconds of each query, the best of several rounds."""
    found = np.full(len(queries), np.inf)
    for _ in range(repeat):
        for i, query in enumerate(queries):
            started = time.perf_counter()
            work(query)
            found[i] = min(found[i], 1e3 * (time.perf_counter() - started))
    return found


def main() -> None:
    """Questions, then prose of 1, 10 and 100 kB."""
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--data", type=Path, required=True)
    cli.add_argument("--questions", type=int, default=120)
    cli.add_argument("--repeat", type=int, default=30)
    args = cli.parse_args()
    queries = [Query(row["question"]) for row in lines(args.data / "gsm8k" / "test.jsonl")]
    prose = " ".join(query.text for query in queries)
    queries, estimator = queries[: args.questions], LearnedEstimator.load()
    for query in queries:
        estimator.estimate(query)  # loads the parser and meets the words
    print(f"{'':12} {'estimate':>9} {'expert':>9}   ms, load {os.getloadavg()[0]:.1f}")
    for name, texts in [("question p50", queries)] + [
        (f"{size // 1000} kB", [Query(prose[:size])]) for size in (1000, 10_000, 100_000)
    ]:
        repeat = args.repeat if len(texts[0].text) < 5000 else max(3, args.repeat // 6)
        spent = [np.median(best(work, texts, repeat)) for work in (estimator.estimate, route_expert)]
        print(f"{name:12} {spent[0]:9.3f} {spent[1]:9.3f}")


if __name__ == "__main__":
    main()
