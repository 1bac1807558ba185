"""Ablations of the difficulty estimator, by training it again on a recording (SPEC 7.3).

It is trained without a group of features, or on one domain to route another. Every estimate is made by a fit that
has not seen the item. Routing is by the question alone, as in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from odar.difficulty.estimator import LearnedEstimator
from odar.difficulty.features import GROUPS
from odar.difficulty.training import EPOCHS, STEPS, cross_predict
from odar.errors import InputError
from odar.evals.replay.arrays import PanelArrays
from odar.evals.replay.policies import SEEDS, oracle_router, random_matched
from odar.evals.replay.simulate import Setting, prior_of, route, simulate_paths, targets_of
from odar.evals.router_quality import auroc, pearson
from odar.policy.fusion import FAST
from odar.policy.path import HARD, MEDIUM, Thresholds
from odar.policy.rules import Array, Ints

LEAST_ROWS = 50
"""Items of a domain below which no estimator is trained on it, and none is judged on it."""
_NO_FIELD = ("Imported", "Own questions")
"""Categories that do not name a field: each set counts as a domain."""


@dataclass(frozen=True, slots=True)
class FeatureRow:
    """An estimator, by three figures of the paper's ablation of features."""

    name: str
    pearson: float
    """r of d with d* (SPEC 2.5)."""
    routing_accuracy: float
    """Share of items on the cheapest path that answers best, known in hindsight."""
    accuracy: float
    calls: float


@dataclass(frozen=True, slots=True)
class TransferRow:
    """An estimator that was trained on one domain and routes another."""

    trained_on: str
    applied_to: str
    items: int
    own: float
    """Routing accuracy of an estimator that was trained on other items of the same domain."""
    transferred: float
    """Routing accuracy of the one from the other domain."""
    own_auroc: float
    """How well it tells questions that the fast agent gets wrong; NaN if it gets all of them right, or wrong."""
    transferred_auroc: float

    @property
    def retained(self) -> float:
        """The share of the routing accuracy that is left."""
        return self.transferred / self.own if self.own else float("nan")


def feature_rows(arrays: PanelArrays) -> list[FeatureRow]:
    """Compare the shipped estimator with one trained again on all features, and without each group.

    Raises:
        InputError: too few items.
    """
    setting = Setting.of(arrays.header).changed({"mode": "prior"})
    target, best = targets_of(arrays), oracle_router(arrays, setting).path
    names = {"": "as shipped", "none": "all 24, trained again", **{group: f"without {group}" for group in GROUPS}}
    found = []
    for without, name in names.items():
        prior = prior_of(arrays, setting.changed({"without": without}))
        outcome = simulate_paths(arrays, setting, route(arrays, setting, prior))
        figures = (outcome.path == best, outcome.score, outcome.calls)
        found.append(FeatureRow(name, pearson(prior, target), *(float(each.mean()) for each in figures)))
    chance, paths = random_matched(arrays, setting), route(arrays, setting).path
    by_chance = np.mean([np.random.default_rng(seed).permutation(paths) == best for seed in SEEDS])
    figures = (by_chance, chance.score, chance.calls)
    return [*found, FeatureRow("at random, same mix of paths", 0.0, *(float(each.mean()) for each in figures))]


def transfer_rows(*panels: PanelArrays, train: str = "Mathematics") -> list[TransferRow]:
    """Train on one domain, a category or a benchmark, and route every other category.

    Raises:
        InputError: too few items to train on, or no other domain.
    """
    domains = [domain for arrays in panels for domain in _domains(arrays, train)]
    source = [domain for domain in domains if domain.name == train]
    rows = sum(len(domain.target) for domain in source)
    if rows < LEAST_ROWS:
        raise InputError(f"{rows} items of {train} cannot teach an estimator; at least {LEAST_ROWS} are needed")
    others = [domain for domain in domains if domain.name != train and len(domain.target) >= LEAST_ROWS]
    if not others:
        raise InputError(f"no other domain than {train} has {LEAST_ROWS} items")
    features, target = (np.concatenate([getattr(each, name) for each in source]) for name in ("features", "target"))
    model = LearnedEstimator(epochs=_epochs(rows), seeds=SEEDS[:1]).fit(features, target)
    return [_transferred(model, train, domain) for domain in others]


@dataclass(frozen=True, slots=True)
class _Domain:
    """The items of one category."""

    name: str
    features: Array
    target: Array
    wrong: Array
    best: Ints
    """The cheapest path that answers best."""
    thresholds: Thresholds
    verified: bool
    """Without verifications, Medium questions take the Hard path."""

    def routing_accuracy(self, difficulty: Array) -> float:
        """Share of items on their best path."""
        path = self.thresholds.paths(difficulty)
        taken = path if self.verified else np.where(path == MEDIUM, HARD, path)
        return float((taken == self.best).mean())


def _domains(arrays: PanelArrays, train: str) -> list[_Domain]:
    """The domains of a recording without adversarial variants; none if the texts are unknown."""
    clean = np.array(["+" not in key.set for key in arrays.items.keys])
    if not clean.any() or arrays.items.features.shape[1] == 0:
        return []
    arrays, setting = arrays.rows(clean), Setting.of(arrays.header).changed({"mode": "prior"})
    best, target, wrong = oracle_router(arrays, setting).path, targets_of(arrays), 1 - arrays.answers.score[:, FAST]
    thresholds = Thresholds(setting.tau1, setting.tau2)
    pairs = zip(arrays.items.keys, arrays.items.category, strict=True)
    names = [key.set if key.set == train or category in _NO_FIELD else category for key, category in pairs]
    found = []
    for name in dict.fromkeys(names):
        own = np.array([each == name for each in names])
        features = arrays.items.features[own]
        found.append(_Domain(name, features, target[own], wrong[own], best[own], thresholds, arrays.verified))
    return found


def _epochs(rows: int) -> int:
    """Passes over few rows: a quarter of the steps of a full training, or the paper's 50."""
    return max(EPOCHS, int(np.ceil(STEPS * 32 / rows / 4)))


def _transferred(model: LearnedEstimator, train: str, domain: _Domain) -> TransferRow:
    own = cross_predict(domain.features, domain.target, epochs=_epochs(len(domain.target)))
    moved = model.predict(domain.features)
    both = bool(0 < domain.wrong.mean() < 1)
    return TransferRow(
        trained_on=train,
        applied_to=domain.name,
        items=len(domain.target),
        own=domain.routing_accuracy(own),
        transferred=domain.routing_accuracy(moved),
        own_auroc=auroc(own, domain.wrong >= 0.5) if both else float("nan"),
        transferred_auroc=auroc(moved, domain.wrong >= 0.5) if both else float("nan"),
    )
