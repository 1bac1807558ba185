"""Reproduce the published rows of routellm_gsm8k (random .497, length .598) with the code for ODAR's routers (SPEC 7.6).

python scripts/benchmarks/check_routellm.py ../shared/data
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from bench_routing import load_routellm

from odar.lab.router_quality import router_row

SEEDS = (42, 123, 456)


def main() -> None:
    """Print both rows; exit with 1 where one of them is not the published one."""
    data = load_routellm(Path(sys.argv[1]))
    lengths = np.array([len(prompt) for prompt in data.prompts], dtype=float)
    chance = [np.random.default_rng(seed).random(len(lengths)) for seed in SEEDS]
    random = [router_row("random", score, data.weak, data.strong, np.random.default_rng(0)) for score in chance]
    length = router_row("length", lengths, data.weak, data.strong, np.random.default_rng(0))
    found = float(np.mean([row.apgr.value for row in random]))
    each = ", ".join(f"{row.apgr.value:.3f}" for row in random)
    print(f"{len(lengths)} questions that are not contaminated")
    print(f"random  APGR {found:.3f} (seeds {SEEDS}: {each}), published .497")
    print(f"length  APGR {length.apgr.value:.3f} [{length.apgr.low:.3f}, {length.apgr.high:.3f}], published .598")
    sys.exit(0 if abs(found - 0.497) <= 0.02 and abs(length.apgr.value - 0.598) <= 0.001 else 1)


if __name__ == "__main__":
    main()
