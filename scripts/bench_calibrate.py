"""How many questions a calibration needs, and whether certificates hold: draws from recorded models (issue 31, item 3).

    python scripts/bench_calibrate.py --data ../shared/data [--draws 20]

A draw is a user with some labelled questions of a recorded triple. What `odar calibrate` installs is judged on other questions by
its worth at the dial balanced (score less cost, in points), against the cascade as shipped and against the best fixed choice. The
second table certifies along the dial with 200 + 200 questions, 1,000 times, and counts the certificates that do not hold.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from results import RECORDING, TRIPLES, import_arguments, imported, split

from odar.calibration.compare import DIALS, Goal, compare, walk_all
from odar.calibration.fit import fit_calibration
from odar.calibration.guarantee import LossBound, certify
from odar.calibration.install import MIN_CHOICE, chosen_calibration, statistics_calibration
from odar.calibration_file import Calibration
from odar.config import with_values
from odar.evals.replay.table import ReplayTable, load_table
from odar.policy.dial import Dial
from odar.types import SLOW

SIZES = (60, 100, 200, 400)
HARM = 0.5
"""Points of worth: a draw that loses more than this against the shipped cascade has done harm."""


def tables(data: Path) -> Iterator[tuple[str, ReplayTable, ReplayTable]]:
    """Name, judged questions and the others of each triple, and of the local pair."""
    for title, (pattern, prices, _) in TRIPLES.items():
        if title.startswith("Free text"):
            continue
        table = imported(import_arguments(pattern, prices, str(data)))
        yield title, *split(table)
    local = load_table(RECORDING)
    local = local.replaced(settings=with_values(local.settings, {"routing.stages": (), "policy": "cascade"}))
    halves = [np.array([item.split == half for item in local.items]) for half in ("judge", "calibrate")]
    yield "the local pair", *(local.replaced(rows=half) for half in halves)


def drawn(pool: ReplayTable, size: int, seed: int) -> ReplayTable:
    """Some questions of a pool, without a calibration."""
    rows = np.random.default_rng(seed).choice(len(pool), size, replace=False)
    return pool.replaced(rows=np.sort(rows), calibration=Calibration())


def installed(table: ReplayTable, goal: Goal) -> tuple[dict, Calibration]:
    """What `odar calibrate` installs: settings and calibration."""
    if len(table) < MIN_CHOICE:
        return {}, statistics_calibration(table, {})
    calibration = chosen_calibration(table, compare(table, goal), {})
    return dict(calibration.settings), calibration


def worths(judged: ReplayTable, pool: ReplayTable, size: int, draws: int) -> list[tuple[float, float, bool]]:
    """For each draw: points of worth over the shipped cascade and over the best fixed choice; whether it is a cascade."""
    goal = Goal("balanced", Dial().value(judged.reference_usd))
    plain = {"policy": "cascade", "routing.dial": "balanced"}
    own = judged.replaced(calibration=judged.replaced(calibration=Calibration()).own_calibration())
    fixed = [{"policy": agent} for agent in own.agents]
    shipped, *others = (float(goal.worth(each).mean()) for each in walk_all(own, [plain, *fixed]))
    found = []
    for seed in range(draws):
        settings, calibration = installed(drawn(pool, size, seed), goal)
        (choice,) = walk_all(judged.replaced(calibration=calibration), [{**plain, **settings}])
        worth = float(goal.worth(choice).mean())
        found.append((100 * (worth - shipped), 100 * (worth - max(others)), choice.is_cascade))
    return found


def certificates(judged: ReplayTable, pool: ReplayTable, bound: LossBound, draws: int) -> tuple[float, float]:
    """Shares of the draws with a certificate, and with one that does not hold on the whole population."""
    half = min(200, len(judged) // 2)
    plain = drawn(pool, half, 0)
    fitted = fit_calibration(plain, np.ones(half, dtype=bool), belief=True)
    tried = [{"policy": SLOW}, *({"policy": "cascade", "routing.dial": dial} for dial in DIALS)]
    reference, *found = walk_all(judged.replaced(calibration=fitted), tried)
    points = [each.points for each in found]
    losses = [float((reference.score - each.score).mean()) for each in found]
    certified = wrong = 0
    for seed in range(draws):
        rows = np.random.default_rng(seed).integers(
            0, len(judged), 2 * half
        )  # with replacement: these are the population
        test = np.arange(2 * half) < half
        result = certify(bound, points, [each.score[rows] for each in found], reference.score[rows], test)
        if result.points is not None:
            certified += 1
            wrong += losses[points.index(result.points)] > bound.at_most_worse
    return certified / draws, wrong / draws


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--draws", type=int, default=20)
    options = parser.parse_args()
    certified = []
    print(
        "| models | questions | over the shipped cascade, mean | worst draw | harm | over the best fixed choice | a cascade |"
    )
    print("|---" * 7 + "|")
    for name, judged, pool in tables(options.data):
        for size in (size for size in SIZES if size <= len(pool)):
            over, fixed, cascades = (
                np.array(column) for column in zip(*worths(judged, pool, size, options.draws), strict=True)
            )
            print(
                f"| {name} | {size} | {over.mean():+.2f} | {over.min():+.2f} | {(over < -HARM).mean():.0%} "
                f"| {fixed.mean():+.2f} | {cascades.mean():.0%} |",
                flush=True,
            )
        for loss in (0.02, 0.05):
            certified.append((name, loss, *certificates(judged, pool, LossBound(loss), 1000)))
    print("\n| models | at most worse | certified | certificates that do not hold |\n|---|---|---|---|")
    for name, loss, share, wrong in certified:
        print(f"| {name} | {loss} | {share:.0%} | {wrong:.1%} |")


if __name__ == "__main__":
    main()
