"""What the difficulty estimator is worth, by training it again on a recording (SPEC 7.3).

Groups of features are taken out and the estimator is trained without them; or it is trained on one domain and
routes another. Every estimate is by a fit that has not seen the item. Routing is by the question alone, as in the
paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from odar.difficulty.estimator import LearnedEstimator
from odar.difficulty.features import GROUPS
from odar.difficulty.training import EPOCHS, STEPS, cross_predict
from odar.errors import InputError
from odar.evals.replay.arrays import PanelArrays
from odar.evals.replay.policies import SEEDS, oracle_router, random_matched
from odar.evals.replay.setting import Setting
from odar.evals.replay.simulate import odar, prior_of, targets_of
from odar.evals.router_quality import auroc, pearson
from odar.policy.fusion import FAST
from odar.policy.path import HARD, MEDIUM, Thresholds
from odar.policy.rules import Array, Bools, Ints

LEAST_ROWS = 50
"""Items of a domain below which no estimator is trained on it, and none is judged on it."""


_NO_FIELD = ("Imported", "Own questions")
"""Categories that say nothing about the field: each set is a domain of its own."""


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
    """Train the estimator again with all features, then without each group.

    Raises:
        InputError: too few items.
    """
    setting = Setting.of(arrays.header).changed({"mode": "prior"})
    target, best = targets_of(arrays), oracle_router(arrays, setting).path
    found = []
    for group in ("none", *GROUPS):
        changed = setting.changed({"without": group})
        outcome = odar(arrays, changed)
        name = "all 24, trained again" if group == "none" else f"without {group}"
        r = pearson(prior_of(arrays, changed), target)
        found.append(
            FeatureRow(name, r, float((outcome.path == best).mean()), _mean(outcome.score), _mean(outcome.calls))
        )
    shipped, chance = odar(arrays, setting), random_matched(arrays, setting)
    r = pearson(prior_of(arrays, setting), target)
    row = FeatureRow(
        "as shipped", r, float((shipped.path == best).mean()), _mean(shipped.score), _mean(shipped.calls)
    )
    luck = [np.random.default_rng(seed).permutation(shipped.path) == best for seed in SEEDS]
    last = FeatureRow(
        "at random, same mix of paths", 0.0, _mean(np.array(luck)), _mean(chance.score), _mean(chance.calls)
    )
    return [row, *found, last]


def transfer_rows(*panels: PanelArrays, train: str = "Mathematics") -> list[TransferRow]:
    """Train on one domain, a category or a benchmark, and route every other category.

    Raises:
        InputError: too few items to train on, or no other domain.
    """
    domains = [_Domain.of(arrays, train) for arrays in panels]
    source = [domain for found in domains for domain in found if domain.name == train]
    others = [domain for found in domains for domain in found if domain.name != train]
    rows = sum(len(domain.target) for domain in source)
    if rows < LEAST_ROWS:
        raise InputError(f"{rows} items of {train} cannot teach an estimator; at least {LEAST_ROWS} are needed")
    others = [domain for domain in others if len(domain.target) >= LEAST_ROWS]
    if not others:
        raise InputError(f"no other domain than {train} has {LEAST_ROWS} items")
    model = _train(
        np.concatenate([each.features for each in source]), np.concatenate([each.target for each in source])
    )
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

    @classmethod
    def of(cls, arrays: PanelArrays, train: str) -> list[_Domain]:
        clean = np.array(["+" not in key.set for key in arrays.items.keys])
        if not clean.any() or arrays.items.features.shape[1] == 0:
            return []
        arrays, setting = arrays.rows(clean), Setting.of(arrays.header).changed({"mode": "prior"})
        best, target = oracle_router(arrays, setting).path, targets_of(arrays)
        wrong = 1 - arrays.answers.score[:, FAST]
        thresholds = Thresholds(setting.tau1, setting.tau2)
        pairs = zip(arrays.items.keys, arrays.items.category, strict=True)
        names = [key.set if key.set == train or category in _NO_FIELD else category for key, category in pairs]
        found = []
        for name in dict.fromkeys(names):
            own: Bools = np.array([each == name for each in names])
            found.append(
                cls(
                    name,
                    arrays.items.features[own],
                    target[own],
                    wrong[own],
                    best[own],
                    thresholds,
                    arrays.verified,
                )
            )
        return found


def _train(x: Array, target: Array) -> LearnedEstimator:
    return LearnedEstimator(epochs=_epochs(len(x)), seeds=SEEDS[:1]).fit(x, target)


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


def _mean(values: Sequence[float] | Array) -> float:
    return float(np.mean(values))
