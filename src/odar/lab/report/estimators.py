"""Ablations of the difficulty estimator, retrained on a recording (SPEC 7.3).

The estimator is trained without a group of features, or on one domain to route another. Every item is rated by a
fit to other items. Routing is by the question alone, as in the paper.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odar.difficulty.estimator import shipped_estimator
from odar.difficulty.features import GROUPS
from odar.errors import InputError
from odar.lab.replay.policies import best_paths, run_policy
from odar.lab.replay.table import ReplayTable
from odar.lab.report.exhibit import Exhibit, exhibit
from odar.lab.report.findings import Findings
from odar.lab.router_quality import auroc, pearson
from odar.lab.training import EPOCHS, SEEDS, STEPS, check_row_count, cross_val_predict, d_star, fit
from odar.policy.arrays import Array, Bools
from odar.types import FAST

MIN_ROWS = 50
"""Minimum number of items of a domain for training or judging an estimator."""
_EPOCHS = 40
"""Epochs of retraining from the shipped weights; more make no measurable difference."""
_NO_FIELD = ("Imported", "Own questions")
"""Categories that do not name a field: each set counts as a domain."""


def features(findings: Findings) -> list[Exhibit]:
    """Compare the shipped estimator with retrained ones, on all features and without each group.

    Raises:
        InputError: too few items.
    """
    table = findings.table
    target = targets_of(table)
    best = best_paths(table)
    names = {"": "as shipped", "none": "all 24, trained again", **{group: f"without {group}" for group in GROUPS}}
    rows: list[list[Any]] = []
    for without, name in names.items():
        prior = _retrained(table, without) if without else table.difficulty
        outcome = run_policy(table.replaced(difficulty=prior), "paper")
        figures = (outcome.path == best, outcome.score, outcome.calls)
        rows.append([name, pearson(prior, target), *(float(each.mean()) for each in figures)])
    chance = findings.outcomes["random-matched"]
    paths = findings.outcomes["paper"].path
    by_chance = np.mean([np.random.default_rng(seed).permutation(paths) == best for seed in SEEDS])
    shares = [float(each.mean()) for each in (by_chance, chance.score, chance.calls)]
    rows.append(["at random, same mix of paths", 0.0, *shares])
    return [exhibit("features", rows)]


def targets_of(table: ReplayTable) -> Array:
    """d* (SPEC 2.5), from the effort of an item and the score of its fast answer."""
    effort = np.array(table.column("effort"), dtype=np.float64)  # NaN if unknown
    return d_star(1 - table.scores(FAST), effort)


def _features(table: ReplayTable) -> Array:
    return np.array(table.column("features"), dtype=np.float64).reshape(len(table), -1)


def _retrained(table: ReplayTable, without: str) -> Array:
    """Train on the other folds of the recording without a group of features, from the shipped weights."""
    shipped = shipped_estimator()
    phi = _features(table)
    check_row_count(len(phi) if phi.shape[1] else 0)
    if without in GROUPS:
        phi[:, GROUPS[without]] = shipped.scaling.mean[GROUPS[without]]  # a constant teaches nothing
    return cross_val_predict(phi, targets_of(table), start=shipped, epochs=_EPOCHS)


def transfer(findings: Findings) -> list[Exhibit]:
    """Train on one domain, a category or a benchmark, and route every other category.

    Raises:
        InputError: too few items to train on, no other domain, or no texts.
    """
    table = findings.table
    train = findings.train
    # the domain of each item: its category, or its set
    names = np.array(
        [
            item.key.set if item.key.set == train or item.category in _NO_FIELD else item.category
            for item in table.items
        ]
    )
    source = names == train
    features = _features(table)
    if source.sum() < MIN_ROWS or not features.shape[1]:
        raise InputError(
            f"{source.sum()} items of {train} are too few to train an estimator; at least {MIN_ROWS} are needed"
        )
    others = [name for name in dict.fromkeys(names.tolist()) if name != train and (names == name).sum() >= MIN_ROWS]
    if not others:
        raise InputError(f"no other domain than {train} has {MIN_ROWS} items")
    # train on one domain
    target = targets_of(table)
    wrong = 1 - table.scores(FAST) >= 0.5
    best = best_paths(table)
    epochs = _epochs(int(source.sum()))
    model = fit(features[source], target[source], epochs=epochs, seeds=SEEDS[:1])

    def figures(difficulty: Array, own: Bools) -> tuple[float, float]:
        """Routing accuracy, and AUROC for errors of the fast agent; NaN if all or none are errors."""
        taken = run_policy(table.replaced(rows=own).replaced(difficulty=difficulty), "paper").path
        both = 0 < wrong[own].mean() < 1
        return float((taken == best[own]).mean()), auroc(difficulty, wrong[own]) if both else float("nan")

    # route the others by it, and by estimators that were trained on other items of the same domain
    rows = []
    for name in others:
        own = names == name
        trained = cross_val_predict(features[own], target[own], epochs=_epochs(int(own.sum())))
        accuracy, area = figures(trained, own)
        moved, moved_area = figures(model.predict(features[own]), own)
        retained = moved / accuracy if accuracy else float("nan")
        rows.append([f"{train} → {name}", int(own.sum()), accuracy, moved, retained, area, moved_area])
    return [exhibit("transfer", rows)]


def _epochs(rows: int) -> int:
    """The epochs for a quarter of the steps of a full training; at least the paper's 50."""
    return max(EPOCHS, int(np.ceil(STEPS * 32 / rows / 4)))
