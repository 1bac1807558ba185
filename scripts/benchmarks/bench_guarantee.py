"""How often `odar certify` certifies too much, on recorded answers of three triples of models.

    python scripts/benchmarks/bench_guarantee.py --data ../shared/data [--draws 1000]

Each draw takes some of the questions as a user's recording: one half chooses the bets, the other half certifies the cheapest
dial. The true loss is that of the certified dial on all questions of the set. The belief is the shipped one; a test is valid
for any belief that was not fitted to its half of the questions, and a fit for each draw would take hours.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from results import TRIPLES, cascade, import_arguments, imported

from odar.lab.calibration.compare import DIALS, walk_all
from odar.lab.calibration.guarantee import certify
from odar.policy.dial import Dial
from odar.types import SLOW

CLAIMS = ((0.05, 400), (0.02, 400), (0.02, 1200))
"""Accuracy that may be lost, and the number of questions."""


def main() -> None:
    """Print a row for each triple and claim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--draws", type=int, default=1000)
    options = parser.parse_args()
    print(
        "| triple | at most worse | questions | certified | true loss above | cost of the certified dial, slow = 1 |"
    )
    print("|---|---|---|---|---|---|")
    points = [Dial.parse(dial).points for dial in DIALS]
    for title, (pattern, prices, _) in list(TRIPLES.items())[:3]:
        table = imported(import_arguments(pattern, prices, str(options.data)))
        slow, *found = walk_all(table, [{"policy": SLOW}, *(cascade(dial) for dial in DIALS)])
        losses = [float((slow.score - each.score).mean()) for each in found]
        costs = [float(each.cost_usd.mean() / slow.cost_usd.mean()) for each in found]
        for allowed, items in CLAIMS:
            rng = np.random.default_rng(42)
            certified: list[int] = []
            for _ in range(options.draws):
                drawn = rng.choice(len(table), items, replace=False)
                test = np.arange(items) % 2 == 0
                scores = [each.score[drawn] for each in found]
                result = certify(points, scores, slow.score[drawn], test, allowed)
                if result.points is not None:
                    certified.append(points.index(result.points))
            above = sum(losses[number] > allowed for number in certified) / options.draws
            cost = np.mean([costs[number] for number in certified]) if certified else float("nan")
            print(
                f"| {title} | {allowed:.2f} | {items:,} | {len(certified) / options.draws:.1%} | {above:.1%} | {cost:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
