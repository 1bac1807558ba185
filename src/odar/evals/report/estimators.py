"""Ablations of the difficulty estimator, retrained on a recording (SPEC 7.3).

The estimator is trained without a group of features, or on one domain to route another. Every item is rated by a
fit to other items. Routing is by the question alone, as in the paper.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from odar.difficulty.estimator import LearnedEstimator, shipped_estimator
from odar.difficulty.features import GROUPS
from odar.difficulty.training import EPOCHS, STEPS, check_row_count, cross_predict
from odar.errors import InputError
from odar.evals.replay.arrays import PanelArrays
from odar.evals.replay.policies import SEEDS, oracle_router, random_matched
from odar.evals.replay.simulate import prior_of, route, simulate_paths, targets_of
from odar.evals.report.draw import Exhibit, exhibit
from odar.evals.report.findings import Findings
from odar.evals.router_quality import auroc, pearson
from odar.policy.arrays import Array, Bools
from odar.policy.fusion import FAST
from odar.policy.path import HARD, MEDIUM, Thresholds

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
    arrays, setting = findings.arrays, replace(findings.setting, mode="prior")
    target, best = targets_of(arrays), oracle_router(arrays, setting).path
    names = {"": "as shipped", "none": "all 24, trained again", **{group: f"without {group}" for group in GROUPS}}
    rows: list[list[Any]] = []
    for without, name in names.items():
        prior = _retrained(arrays, without) if without else prior_of(arrays, setting)
        outcome = simulate_paths(arrays, setting, route(arrays, setting, prior))
        figures = (outcome.path == best, outcome.score, outcome.calls)
        rows.append([name, pearson(prior, target), *(float(each.mean()) for each in figures)])
    chance, paths = random_matched(arrays, setting), route(arrays, setting).path
    by_chance = np.mean([np.random.default_rng(seed).permutation(paths) == best for seed in SEEDS])
    shares = [float(each.mean()) for each in (by_chance, chance.score, chance.calls)]
    rows.append(["at random, same mix of paths", 0.0, *shares])
    return [exhibit("features", rows, [0])]


def _retrained(arrays: PanelArrays, without: str) -> Array:
    """Retrain the shipped estimator on the other folds of the recording without a group of features."""
    shipped, phi = shipped_estimator(), arrays.items.features.copy()
    check_row_count(len(phi) if phi.shape[1] else 0)
    if without in GROUPS:
        phi[:, GROUPS[without]] = shipped.scaling_.mean[GROUPS[without]]  # a constant teaches nothing
    return cross_predict(phi, targets_of(arrays), start=shipped, epochs=_EPOCHS)


def transfer(findings: Findings) -> list[Exhibit]:
    """Train on one domain, a category or a benchmark, and route every other category.

    Raises:
        InputError: too few items to train on, no other domain, or no texts.
    """
    arrays, setting, train = findings.arrays, replace(findings.setting, mode="prior"), findings.train
    pairs = zip(arrays.items.keys, arrays.items.category, strict=True)
    names = np.array(
        [key.set if key.set == train or category in _NO_FIELD else category for key, category in pairs]
    )
    source, features = names == train, arrays.items.features
    if source.sum() < MIN_ROWS or not features.shape[1]:
        raise InputError(
            f"{source.sum()} items of {train} are too few to train an estimator; at least {MIN_ROWS} are needed"
        )
    others = [name for name in dict.fromkeys(names.tolist()) if name != train and (names == name).sum() >= MIN_ROWS]
    if not others:
        raise InputError(f"no other domain than {train} has {MIN_ROWS} items")
    target, wrong = targets_of(arrays), 1 - arrays.answers.score[:, FAST] >= 0.5
    best, thresholds = oracle_router(arrays, setting).path, Thresholds(setting.tau1, setting.tau2)
    epochs = _epochs(int(source.sum()))
    model = LearnedEstimator(epochs=epochs, seeds=SEEDS[:1]).fit(features[source], target[source])

    def figures(difficulty: Array, own: Bools) -> tuple[float, float]:
        """Return routing accuracy, and AUROC for errors of the fast agent; NaN if all or none are errors."""
        path = thresholds.paths(difficulty)
        taken = path if arrays.verified else np.where(path == MEDIUM, HARD, path)
        both = 0 < wrong[own].mean() < 1
        return float((taken == best[own]).mean()), auroc(difficulty, wrong[own]) if both else float("nan")

    rows = []
    for name in others:
        own = names == name
        trained = cross_predict(features[own], target[own], epochs=_epochs(int(own.sum())))
        (accuracy, area), (moved, moved_area) = figures(trained, own), figures(model.predict(features[own]), own)
        retained = moved / accuracy if accuracy else float("nan")
        rows.append([f"{train} → {name}", int(own.sum()), accuracy, moved, retained, area, moved_area])
    return [exhibit("transfer", rows)]


def _epochs(rows: int) -> int:
    """Return the epochs for few rows: a quarter of the steps of a full training, at least the paper's 50."""
    return max(EPOCHS, int(np.ceil(STEPS * 32 / rows / 4)))
