"""Measure the CPU time of an estimate, with and without the dependency parse, and of the linear model alone.

    OPENBLAS_NUM_THREADS=1 taskset -c 0 python scripts/benchmarks/bench_features.py --data ../shared/data

Times are CPU times, so that other work on the machine counts less; each GSM8K test question (read for its text only) is
timed --repeat times and the best counts. To compare two versions, run both in turn, with PYTHONPATH set to the sources of
each. `scripts/benchmarks/bench.py difficulty` gives estimates a second and percentiles.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from odar.difficulty.base import estimate_turn
from odar.difficulty.estimator import LearnedEstimator
from odar.difficulty.features import phi
from odar.policy.experts import route_expert
from odar.types import Query


def best(work: Callable[[Query], object], queries: list[Query], repeat: int) -> np.ndarray:
    """Milliseconds of CPU time of each query, the best of several rounds."""
    found = np.full(len(queries), np.inf)
    for _ in range(repeat):
        for i, query in enumerate(queries):
            started = time.process_time()
            work(query)
            found[i] = min(found[i], 1e3 * (time.process_time() - started))
    return found


def main() -> None:
    """Questions, then prose of 1, 10 and 100 kB."""
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--data", type=Path, required=True)
    cli.add_argument("--questions", type=int, default=120)
    cli.add_argument("--repeat", type=int, default=30)
    args = cli.parse_args()
    estimator = LearnedEstimator.load()
    with (args.data / "gsm8k" / "test.jsonl").open(encoding="utf8") as file:
        queries = [Query(json.loads(line)["question"]) for line in file]
    prose = " ".join(query.text for query in queries)
    queries = queries[: args.questions]
    features: dict[str, np.ndarray] = {}
    works: dict[str, Callable[[Query], object]] = {
        "served": lambda query: estimate_turn(estimator, query, parse=False),
        "parsed": estimator.estimate,
        "expert": route_expert,
        "linear": lambda query: estimator.predict(features[query.text]),
    }
    print(f"{'':14}" + "".join(f"{name:>9}" for name in works) + f"   ms of CPU, load {os.getloadavg()[0]:.1f}")
    for name, texts in [("question mean", queries)] + [
        (f"{size // 1000} kB", [Query(prose[:size])]) for size in (1000, 10_000, 100_000)
    ]:
        # the features of a text, for the linear model alone; this also loads the parser and meets the words
        features |= {query.text: phi(query) for query in texts}
        repeat = args.repeat if len(texts[0].text) < 5000 else max(3, args.repeat // 6)
        print(f"{name:14}" + "".join(f"{best(work, texts, repeat).mean():9.3f}" for work in works.values()))


if __name__ == "__main__":
    main()
