"""A guarantee on accuracy (SPEC 5.14): the cheapest setting with a bounded loss against a reference.

One parameter t moves the thresholds from always Hard (t = 1) to always Simple (t = 0). Settings are tested in this
order, each at the full level, until one fails; the last that passed is certified. Such fixed-sequence testing needs
no correction for the number of settings. One half of the items chooses the bet at each setting, the other tests.

The test bets against "the loss is larger than allowed". With loss = reference right − ODAR right in {−1, 0, 1},
capital is multiplied by 1 + λ·(allowed − loss) for each item. If the loss is in fact larger, capital ever reaches
1/α with a probability of at most α (Ville's inequality). No large sample is needed.

It holds for later questions that are exchangeable with these items, and for the same models, prompts, thresholds
and quantile tables.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from odar.calibration.evidence import Evidence
from odar.calibration.fit import CurrentParts, fit_setup
from odar.calibration.setup import Setup
from odar.errors import InputError
from odar.policy.arrays import Array, Bools, Ints
from odar.policy.fusion import SOLVE
from odar.policy.path import Thresholds
from odar.policy.target import ThresholdPath

SEED = 42
AGAINST = ("always-hard", "always-slow")
"""References of a certificate: the Hard path, or one slow answer."""
STEPS = 51
"""Number of settings on the path."""
_BETS = np.linspace(0.02, 0.9, 45)
"""Bets that are tried, as shares of the bet that would lose the whole capital on one item."""


@dataclass(frozen=True, slots=True)
class LossBound:
    """The claim to certify."""

    at_most_worse: float
    """Accuracy that may be lost against the reference, such as 0.05."""
    confidence: float = 0.95
    against: str = AGAINST[0]

    def __post_init__(self) -> None:
        if not 0 < self.at_most_worse < 1:
            raise InputError(f"--at-most-worse {self.at_most_worse:g}: expected a share such as 0.05")
        if not 0.5 <= self.confidence < 1:
            raise InputError(f"--confidence {self.confidence:g}: expected a share such as 0.95")


@dataclass(frozen=True, slots=True)
class Certificate:
    """The result of a test along the path."""

    bound: LossBound
    t: float
    thresholds: Thresholds
    items: int
    """Items of the test; no part was fitted to them."""
    loss: float
    """Accuracy lost against the reference on those items."""
    accuracy: float
    reference: float
    calls: float
    reference_calls: float
    more_items: int | None
    """Further test items that the next cheaper setting would need at its losses; None if no number would do."""
    path: ThresholdPath
    """The thresholds for each t; every t from 1 down to this one was certified."""

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as written to a calibration file."""
        names = ("t", "loss", "accuracy", "calls", "reference_calls", "more_items")
        return {
            **asdict(self.bound),
            **{name: getattr(self, name) for name in names},
            "tau1": self.thresholds.tau1,
            "tau2": self.thresholds.tau2,
            "path": [list(knot) for knot in self.path.knots],
            "test_items": self.items,
            "reference_accuracy": self.reference,
            "assumes": "later questions are exchangeable with these items",
        }

    @property
    def cheaper(self) -> bool:
        """Whether a setting cheaper than always Hard is certified."""
        return self.t < 1.0


def certify(
    bound: LossBound,
    difficulty: Array,
    correct: Bools,
    calls: Ints,
    reference: Bools,
    path: ThresholdPath,
    test: Bools,
) -> Certificate:
    """Certify the cheapest setting on the path that the items support.

    Args:
        bound: the claim to certify.
        difficulty: of each item, by parts that were fitted to none of the `test` items.
        correct: (N, 3) whether Simple, Medium and Hard are right.
        calls: (N, 3) calls of each.
        reference: whether the reference is right.
        path: the thresholds for each t.
        test: the items of the test; the others choose the bets.
    """

    def paths_at(t: float) -> Ints:
        return Thresholds(*path.thresholds(t)).paths(np.minimum(difficulty, 0.999))

    rows, certified, more_items = np.arange(len(difficulty)), 1.0, None
    needed = math.log(1 / (1 - bound.confidence))
    for t in np.linspace(1.0, 0.0, STEPS).tolist()[1:]:
        loss = reference.astype(np.float64) - correct[rows, paths_at(t)]
        bet = choose_bet(loss[~test], bound.at_most_worse)
        if log_capital(loss[test], bound.at_most_worse, bet) < needed:
            more_items = _more_items(loss, bound, needed, int(test.sum()))
            break
        certified = t
    paths = paths_at(certified)
    right = correct[rows, paths]
    return Certificate(
        bound=bound,
        t=certified,
        thresholds=Thresholds(*path.thresholds(certified)),
        items=int(test.sum()),
        loss=float((reference[test].astype(np.float64) - right[test]).mean()),
        accuracy=float(right[test].mean()),
        reference=float(reference[test].mean()),
        calls=float(calls[rows, paths][test].mean()),
        reference_calls=float(calls[test, 2].mean()),
        more_items=more_items,
        path=path,
    )


def _more_items(loss: Array, bound: LossBound, needed: float, items: int) -> int | None:
    """Return the further test items that would certify these losses; None if they are too large."""
    bet = choose_bet(loss, bound.at_most_worse)
    growth = float(np.log1p(bet * (bound.at_most_worse - loss)).mean())
    if growth <= 0 or loss.mean() >= bound.at_most_worse:
        return None
    return max(1, math.ceil(needed / growth) - items)


def choose_bet(loss: Array, allowed: float) -> float:
    """Return the bet with the fastest growth of capital on these losses; a cautious one if there are few.

    >>> choose_bet(np.zeros(200), 0.05) > choose_bet(np.array([0.0] * 18 + [1.0, 1.0]), 0.05)
    True
    """
    bets = _BETS / (1 - allowed)  # the worst factor, at a loss of 1, is 1 − bet·(1 − allowed)
    # one further lost item, so that a few items without loss do not lead to the highest bet
    losses = np.append(loss, 1.0)
    growth = np.log1p(bets[:, None] * (allowed - losses[None, :])).mean(axis=1)
    return float(bets[int(np.argmax(growth))])


def log_capital(loss: Array, allowed: float, bet: float) -> float:
    """Return the logarithm of the highest capital of bets against a loss above `allowed`, item by item.

    >>> round(log_capital(np.zeros(100), 0.05, 0.9), 2)
    4.4
    """
    return float(np.cumsum(np.log1p(bet * (allowed - loss))).max(initial=0.0))


def guarantee(evidence: Evidence, current: CurrentParts, bound: LossBound) -> tuple[Setup, Certificate]:
    """Fit everything to one half of the items, certify on the other half, and return the certified setup.

    Estimator, posterior, quantiles, μ, σ, β, skills and bets come from the first half only.
    """
    test = np.random.default_rng(SEED).permutation(len(evidence)) % 2 == 0
    setup, _ = fit_setup(evidence.rows(~test), current, SEED)
    outcomes, difficulty = setup.outcomes(evidence), setup.route(evidence.fast).difficulty
    reference = outcomes.correct[:, 2] if bound.against == AGAINST[0] else evidence.correct[:, SOLVE]
    path = ThresholdPath.through((setup.thresholds.tau1, setup.thresholds.tau2))
    certificate = certify(bound, difficulty, outcomes.correct, outcomes.calls, reference, path, test)
    return replace(setup, thresholds=certificate.thresholds), certificate
