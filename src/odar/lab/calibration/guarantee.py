"""A guarantee on accuracy (SPEC 5.14): the cheapest dial with a bounded loss against a fixed choice.

Dials are tested from the most expensive down, each at the full level, until one fails; the last that passed is
certified. Such fixed-sequence testing needs no correction for the number of dials. One half of the items is for
fits and chooses the bet at each dial, the other half tests.

The test bets against "the loss is larger than allowed". With loss = score of the reference − score of the cascade,
between −1 and 1, capital is multiplied by 1 + λ·(allowed − loss) for each item. If the loss is in fact larger,
capital ever reaches 1/α with a probability of at most α (Ville's inequality). No large sample is needed.

It holds for later questions that are exchangeable with these items, and for the same models, prompts and settings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from odar.calibration_file import Calibration, Setting, Source
from odar.errors import InputError
from odar.lab.calibration.compare import DIALS, SEED, Goal, cascades, walk_all
from odar.lab.calibration.fit import MIN_BELIEF, fit_calibration
from odar.lab.replay.outcomes import Outcomes
from odar.lab.replay.table import ReplayTable
from odar.policy.arrays import Array, Bools
from odar.policy.cascade import default_stages, within_samples
from odar.types import SLOW, Stage

_BETS = np.linspace(0.02, 0.9, 45)
"""Bets that are tried, as shares of the bet that would lose the whole capital on one item."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The result of a test along the dial."""

    at_most_worse: float
    """Accuracy that may be lost against the reference, such as 0.02."""
    confidence: float
    against: str
    """The fixed choice that is the reference."""
    points: float | None
    """The cheapest dial that is certified, in points of accuracy; None if none is."""
    test_items: int
    """Items of the test; nothing was fitted to them."""
    loss: float
    """Accuracy lost against the reference on those items, at that dial or at the most expensive one."""
    more_items: int | None
    """Further test items that the next cheaper dial would need at its losses; None if no number would do."""

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "assumes": "later questions are exchangeable with these items"}


def fit_and_certify(
    table: ReplayTable, goal: Goal, *, at_most_worse: float, confidence: float = 0.95, against: str = SLOW
) -> tuple[Calibration, Certificate, Outcomes | None, Outcomes]:
    """Fit to one half of the items, and certify on the other half the cheapest dial that loses at most so much.

    Returns the calibration, the certificate, the certified cascade on the test items, or None, and the reference on
    the same items. The stages are those that are worth most on the first half.
    """
    if not table.has(Stage.parse(against)):
        raise InputError(f"--against {against}: the recording has too few answers for it")
    # fit to one half
    test = np.random.default_rng(SEED).permutation(len(table)) % 2 == 0
    calibration = fit_calibration(table.replaced(rows=~test), belief=bool((~test).sum() >= MIN_BELIEF))
    stages = [str(stage) for stage in _recorded_stages(table)]  # what is certified is what was tested
    tried = [
        {"routing.stages": stages, **cascade, "routing.dial": dial} for cascade in cascades(table) for dial in DIALS
    ]
    # the reference and every dial, and the stages that are worth most on that half
    reference, *found = walk_all(table.replaced(calibration=calibration), [{"policy": against}, *tried])
    best = max(found, key=lambda each: float(goal.worth(each.rows(~test)).mean()))
    tested = [each for each in found if each.settings["routing.stages"] == best.settings["routing.stages"]]
    # test their dials on the other half
    points = [each.points for each in tested]
    scores = [each.score for each in tested]
    certificate = certify(points, scores, reference.score, test, at_most_worse, confidence, against)
    certified = None if certificate.points is None else tested[points.index(certificate.points)].rows(test)
    return calibration, certificate, certified, reference.rows(test)


def certify(
    dials: Sequence[float],
    scores: Sequence[Array],
    reference: Array,
    test: Bools,
    at_most_worse: float,
    confidence: float = 0.95,
    against: str = SLOW,
) -> Certificate:
    """Certify the cheapest dial that the items support.

    Args:
        dials: in points, the most expensive first.
        scores: score of each item at each of the dials, by a cascade that was fitted to none of the `test` items.
        reference: score of each item by the reference.
        test: the items of the test; the others choose the bets.
        at_most_worse: accuracy that may be lost.
        confidence: of the claim that no more is lost.
        against: the name of the reference.
    """
    needed = math.log(1 / (1 - confidence))
    certified = more_items = None
    loss = reference - scores[0]
    for points, score in zip(dials, scores, strict=True):
        tried = reference - score
        bet = choose_bet(tried[~test], at_most_worse)
        if log_capital(tried[test], at_most_worse, bet) < needed:
            more_items = _more_items(tried, at_most_worse, needed, int(test.sum()))
            break
        certified = points
        loss = tried
    lost = float(loss[test].mean())
    return Certificate(at_most_worse, confidence, against, certified, int(test.sum()), lost, more_items)


def _more_items(loss: Array, at_most_worse: float, needed: float, items: int) -> int | None:
    """How many further items would certify these losses; None if no number would."""
    bet = choose_bet(loss, at_most_worse)
    growth = float(np.log1p(bet * (at_most_worse - loss)).mean())
    if growth <= 0 or loss.mean() >= at_most_worse:
        return None
    return max(1, math.ceil(needed / growth) - items)


def certified_calibration(
    fitted: Calibration, certificate: Certificate, settings: Mapping[str, Setting], sources: Iterable[Source]
) -> Calibration:
    """The certified dial as settings, with the certificate.

    `sources` are the model, prompt and sampling of each agent; others remove the certificate.
    """
    document = {**certificate.to_dict(), "sources": [asdict(source) for source in sources]}
    return replace(fitted, settings=dict(settings), made={"certificate": document})


def choose_bet(loss: Array, allowed: float) -> float:
    """The bet with the fastest growth of capital on these losses; a cautious one if there are few.

    >>> choose_bet(np.zeros(200), 0.05) > choose_bet(np.array([0.0] * 18 + [1.0, 1.0]), 0.05)
    True
    """
    bets = _BETS / (1 - allowed)  # the worst factor, at a loss of 1, is 1 − bet·(1 − allowed)
    # one further lost item, so that a few items without loss do not lead to the highest bet
    losses = np.append(loss, 1.0)
    # bets × losses
    growth = np.log1p(bets[:, None] * (allowed - losses[None, :])).mean(axis=1)
    return float(bets[int(np.argmax(growth))])


def log_capital(loss: Array, allowed: float, bet: float) -> float:
    """The logarithm of the highest capital of bets against a loss above `allowed`, item by item.

    >>> round(log_capital(np.zeros(100), 0.05, 0.9), 2)
    4.4
    """
    return float(np.cumsum(np.log1p(bet * (allowed - loss))).max(initial=0.0))


def _recorded_stages(table: ReplayTable) -> list[Stage]:
    """The stages of the settings, as far as the recording has enough answers for all of them together."""
    own = tuple(map(Stage.parse, table.settings.routing.stages)) or default_stages(table.agents)
    most = {agent: table.samples(agent) for agent in table.agents}
    kept: list[Stage] = []
    for stage in own:
        if table.has(stage) and within_samples([*kept, stage], most):
            kept.append(stage)
    return kept
