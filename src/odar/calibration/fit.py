"""Evidence → a setup: every part fitted, kept where it is clearly better, judged on folds it was not fitted to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from odar.calibration.bootstrap import Interval, bootstrap_mean
from odar.calibration.evidence import Evidence, FastAnswers, fit_scores, fit_statistics
from odar.calibration.fusion_fit import FusionFit, fit_fusion
from odar.calibration.parts import FittedPart, fit_estimator_part, fit_posterior_part, folds
from odar.calibration.routing_fit import (
    BALANCED,
    Goal,
    RoutingOption,
    choose_within_limit,
    fit_routing,
    rejection_reason,
)
from odar.calibration.setup import Setup
from odar.difficulty.estimator import LearnedEstimator
from odar.policy.arrays import Array, Ints
from odar.policy.path import PATHS, Thresholds, path_shares
from odar.policy.posterior import PosteriorDifficulty
from odar.policy.rules import Votes

Parts = tuple[FittedPart[LearnedEstimator], FittedPart[PosteriorDifficulty]]


@dataclass(frozen=True, slots=True)
class CurrentParts:
    """What is in use, which a fit is compared with."""

    setup: Setup
    estimator: LearnedEstimator | None
    """The learned estimator in use; None if it is another kind, which is not fitted."""
    posterior: PosteriorDifficulty
    """The coefficients in use, or that would be if the path were chosen by the posterior."""
    looks_first: bool
    """Whether `routing.mode` is posterior."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a setup is expected to do, per item."""

    accuracy: Interval
    calls: Interval
    cost_usd: Interval | None
    mix: dict[str, float]
    """Shares of Simple, Medium and Hard."""

    @classmethod
    def of(cls, values: Array, path: Ints) -> Expectation:
        """From right or wrong, calls and cost of each item, and its path."""
        shares = {str(name): share for name, share in zip(PATHS, path_shares(path), strict=True)}
        return cls(bootstrap_mean(values[0]), *_calls_and_cost(values), shares)


@dataclass(frozen=True, slots=True)
class Fitted:
    """The result of a calibration, and the evidence for it."""

    setup: Setup
    parts: Parts
    before: Expectation
    after: Expectation
    """On folds that nothing was fitted to."""
    accuracy_gain: Interval
    """Accuracy after minus before, paired by item."""
    calls_gain: Interval
    cost_usd_gain: Interval | None
    """The same for calls, and for US dollars where all are known."""
    baselines: dict[str, Interval]
    """Accuracy of always Simple, always Medium, always Hard."""
    moved: float
    """The share of items that take another path than before."""
    looks_first: bool
    """Whether routing by the posterior was among the choices."""
    found: bool = True
    """Whether any setting was no worse than what is in use; if none was, that is `setup`."""
    goal: Goal = BALANCED

    @property
    def price_gain(self) -> Interval:
        """What decides: US dollars, or calls where they are unknown or nothing is charged."""
        charged = any(each.cost_usd is not None and each.cost_usd.value for each in (self.before, self.after))
        return self.cost_usd_gain if charged and self.cost_usd_gain is not None else self.calls_gain

    @property
    def rejection(self) -> str:
        """Why this must not be installed (SPEC 5.10b); empty if it may be."""
        if not self.found and self.goal.limited:
            return "no setting that was tried stays within the limits"
        if not self.found:
            return "none of the settings that were tried is as good as the current ones"
        if self.goal == BALANCED:
            why = rejection_reason(self.accuracy_gain, self.price_gain)
        else:  # the user said what it may cost; it must only not be a clear loss without limits
            lost = not self.goal.limited and self.accuracy_gain.high < 0
            why = "accuracy is significantly below the current settings" if lost else None
        return f"on held-out folds, {why}" if why else ""


def fit(evidence: Evidence, current: CurrentParts, seed: int = 42, goal: Goal = BALANCED) -> Fitted:
    """Fit everything to all items, and say what to expect from folds that each part was not fitted to."""
    setup, parts = fit_setup(evidence, current, seed, goal)
    size = len(evidence)
    before, path_before = _simulated(evidence, current.setup)
    after, always, path_after = np.zeros((3, size)), np.zeros((3, size)), np.zeros(size, dtype=np.int64)
    fold = folds(size, seed)
    for number in range(int(fold.max()) + 1):
        test = fold == number
        part, _ = fit_setup(evidence.rows(~test), current, seed, goal)
        unseen = evidence.rows(test)
        after[:, test], path_after[test] = _simulated(unseen, part)
        always[:, test] = part.outcomes(unseen).correct.T
    calls_gain, cost_gain = _calls_and_cost(after - before)
    return Fitted(
        setup=setup,
        parts=parts,
        before=Expectation.of(before, path_before),
        after=Expectation.of(after, path_after),
        accuracy_gain=bootstrap_mean(after[0] - before[0], shares=False),
        calls_gain=calls_gain,
        cost_usd_gain=cost_gain,
        baselines={f"always {name}": bootstrap_mean(each) for name, each in zip(PATHS, always, strict=True)},
        moved=float((path_before != path_after).mean()),
        looks_first=current.looks_first,
        found=setup is not current.setup,
        goal=goal,
    )


def fit_setup(evidence: Evidence, current: CurrentParts, seed: int, goal: Goal = BALANCED) -> tuple[Setup, Parts]:
    """Return a setup for these items, or the current one if none is better, and how its parts were fitted."""
    measured = replace(current.setup, statistics=fit_statistics(evidence), surrogate=fit_scores(evidence))
    rules = [_fit_fusion(measured.votes(evidence), current.setup.fusion, goal), current.setup.fusion]
    fast = evidence.fast
    estimator = fit_estimator_part(fast, current.estimator, seed, current.setup.thresholds)
    same = both = fit_posterior_part(fast, measured, current.posterior, seed=seed)
    if estimator.better:
        both = fit_posterior_part(fast, measured, current.posterior, estimator.held_out, seed)
    ways = list(_routing_choices(current, measured, fast, estimator, same, both))
    variants = [
        RoutingOption(*way, rule, result)
        for rule in rules
        for result in [replace(measured, fusion=rule).outcomes(evidence)]
        for way in ways
    ]
    chosen = fit_routing(variants, current.setup.thresholds, _simulated(evidence, current.setup)[0][0], goal)
    if chosen is None:
        return current.setup, (estimator, both)
    variant, thresholds = chosen
    by_expert: dict[str, Thresholds] = {}
    if goal.kind == "accuracy" and goal.max_calls is not None:
        fused = [option for option in variants if option.fusion is rules[0]]
        fused.sort(key=lambda each: (each.estimator is not None, each.posterior is not current.setup.posterior))
        variant, thresholds, by_expert = choose_within_limit(fused, thresholds, fast.experts, goal)
    setup = replace(
        measured,
        thresholds=thresholds,
        by_expert=by_expert,
        estimator=variant.estimator,
        posterior=variant.posterior,
        fusion=variant.fusion,
    )
    return setup, (estimator, both if variant.estimator else same)


def _routing_choices(
    current: CurrentParts,
    measured: Setup,
    fast: FastAnswers,
    estimator: FittedPart[LearnedEstimator],
    same: FittedPart[PosteriorDifficulty],
    both: FittedPart[PosteriorDifficulty],
) -> Iterator[tuple[LearnedEstimator | None, PosteriorDifficulty | None, Array]]:
    """Ways to a difficulty, the most fitted first: each estimator with each posterior, then each alone.

    What is not clearly better by itself is not among them. What is may still put the items in no better order: most
    of a gain in log loss is a matter of level, which thresholds make up for.
    """
    kept = (None, fast.prior, same)
    priors = [(estimator.model, estimator.held_out, both), kept] if estimator.better else [kept]
    for model, prior, posterior in priors if current.looks_first else ():
        if posterior.better:
            yield model, posterior.model, posterior.held_out
        yield model, current.posterior, measured.reconsider(current.posterior, prior, fast)
    for model, prior, _ in priors:
        yield model, None, prior


def _fit_fusion(votes: Votes, in_use: FusionFit, goal: Goal) -> FusionFit:
    """Fit β and skills on both paths that fuse.

    The rule in use stays unless a fitted one does clearly better. For accuracy, equal skills, which are a default
    and not measured, are replaced by a fit that is no less accurate than majority voting and the best source.
    """
    columns = list(votes.sources)
    measured = bool(np.ptp(in_use.skills)) or goal.kind != "accuracy"
    found = fit_fusion(votes, replace(in_use, skills=in_use.skills[columns]) if measured else None)
    return replace(found, skills=found.skills[[columns.index(source) for source in sorted(set(columns))]])


def _simulated(evidence: Evidence, setup: Setup) -> tuple[Array, Ints]:
    """Right or wrong, calls and cost of every item under a setup, a row each, and the path it takes."""
    paths = setup.route(evidence.fast).path
    return np.stack(setup.outcomes(evidence).under(paths)), paths


def _calls_and_cost(values: Array) -> tuple[Interval, Interval | None]:
    _, calls, cost = values
    known = not np.isnan(cost).any()
    return bootstrap_mean(calls, shares=False), bootstrap_mean(cost, shares=False) if known else None
