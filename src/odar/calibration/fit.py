"""Fit of a setup to evidence: each fitted part is used only if it is significantly better on held-out folds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from odar.calibration.bootstrap import Interval, bootstrap_mean
from odar.calibration.evidence import Evidence, FastAnswers, fit_statistics, fit_surrogate_statistics
from odar.calibration.fusion_fit import FusionFit, fit_fusion
from odar.calibration.parts import FittedPart, fit_estimator_part, fit_posterior_part, fold_masks
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
    """The parts in use, with which a fit is compared."""

    setup: Setup
    estimator: LearnedEstimator | None
    """The learned estimator in use; None if it is of another kind, which is not fitted."""
    posterior: PosteriorDifficulty
    """The coefficients for `routing.mode = "posterior"`, even if the mode is another."""
    may_use_posterior: bool
    """Whether the fit may choose routing by the posterior."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """Expected accuracy, calls and cost per item."""

    accuracy: Interval
    calls: Interval
    cost_usd: Interval | None
    mix: dict[str, float]
    """Shares of Simple, Medium and Hard."""

    @classmethod
    def of(cls, values: Array, path: Ints) -> Expectation:
        """Make it of the score, calls and cost of each item, and of its path."""
        shares = {str(name): share for name, share in zip(PATHS, path_shares(path), strict=True)}
        return cls(bootstrap_mean(values[0]), *_calls_and_cost(values), shares)


@dataclass(frozen=True, slots=True)
class Fitted:
    """The result of a calibration, and the evidence for it."""

    setup: Setup
    parts: Parts
    before: Expectation
    after: Expectation
    """On held-out folds."""
    accuracy_gain: Interval
    """Accuracy after minus before, paired by item."""
    calls_gain: Interval
    cost_usd_gain: Interval | None
    """None if a cost is unknown."""
    baselines: dict[str, Interval]
    """Accuracy of always Simple, always Medium, always Hard."""
    moved: float
    """The share of items that take another path than before."""
    may_use_posterior: bool
    """Whether routing by the posterior was among the choices."""
    setting_found: bool
    """Whether a setting was acceptable; if none was, `setup` is the current one."""
    goal: Goal

    @property
    def price_gain(self) -> Interval:
        """The change in US dollars, or in calls if a cost is unknown or nothing is charged."""
        charged = any(each.cost_usd is not None and each.cost_usd.value for each in (self.before, self.after))
        return self.cost_usd_gain if charged and self.cost_usd_gain is not None else self.calls_gain

    @property
    def rejection(self) -> str:
        """The reason why this must not be installed (SPEC 5.10b); empty if it may be."""
        if not self.setting_found and self.goal.limited:
            return "no setting that was tried stays within the limits"
        if not self.setting_found:
            return "none of the settings that were tried is as good as the current ones"
        reason = None
        if self.goal == BALANCED:
            reason = rejection_reason(self.accuracy_gain, self.price_gain)
        elif not self.goal.limited and self.accuracy_gain.high < 0:
            reason = "accuracy is significantly below the current settings"
        return f"on held-out folds, {reason}" if reason else ""


def fit(evidence: Evidence, current: CurrentParts, seed: int = 42, goal: Goal = BALANCED) -> Fitted:
    """Fit everything to all items; expectations come from fits without each fold."""
    setup, parts = fit_setup(evidence, current, seed, goal)
    size = len(evidence)
    before, path_before = _simulate(evidence, current.setup)
    after, always, path_after = np.zeros((3, size)), np.zeros((3, size)), np.zeros(size, dtype=np.int64)
    for test in fold_masks(size, seed):
        fold_setup, _ = fit_setup(evidence.rows(~test), current, seed, goal)
        unseen = evidence.rows(test)
        after[:, test], path_after[test] = _simulate(unseen, fold_setup)
        always[:, test] = fold_setup.outcomes(unseen).correct.T
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
        may_use_posterior=current.may_use_posterior,
        setting_found=setup is not current.setup,
        goal=goal,
    )


def fit_setup(evidence: Evidence, current: CurrentParts, seed: int, goal: Goal = BALANCED) -> tuple[Setup, Parts]:
    """Return a setup for these items, or the current one if none is better, and its fitted parts."""
    measured = replace(
        current.setup, statistics=fit_statistics(evidence), surrogate=fit_surrogate_statistics(evidence)
    )
    rules = [_fit_fusion(measured.votes(evidence), current.setup.fusion, goal), current.setup.fusion]
    fast = evidence.fast
    estimator = fit_estimator_part(fast, current.estimator, seed, current.setup.thresholds)
    posterior = posterior_with_estimator = fit_posterior_part(fast, measured, current.posterior, seed=seed)
    if estimator.better:
        posterior_with_estimator = fit_posterior_part(fast, measured, current.posterior, estimator.held_out, seed)
    difficulties = list(_difficulties(current, measured, fast, estimator, posterior, posterior_with_estimator))
    variants = []
    for rule in rules:
        outcomes = replace(measured, fusion=rule).outcomes(evidence)
        variants += [RoutingOption(*each, rule, outcomes) for each in difficulties]
    current_right = _simulate(evidence, current.setup)[0][0]
    chosen = fit_routing(variants, current.setup.thresholds, current_right, goal)
    if chosen is None:
        return current.setup, (estimator, posterior_with_estimator)
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
    return setup, (estimator, posterior_with_estimator if variant.estimator else posterior)


def _difficulties(
    current: CurrentParts,
    measured: Setup,
    fast: FastAnswers,
    estimator: FittedPart[LearnedEstimator],
    posterior: FittedPart[PosteriorDifficulty],
    posterior_with_estimator: FittedPart[PosteriorDifficulty],
) -> Iterator[tuple[LearnedEstimator | None, PosteriorDifficulty | None, Array]]:
    """Yield the difficulties to try, with the estimator and the posterior that they come from.

    Each estimator is combined with each posterior, then with none; fitted parts come first, and only if they are
    better by themselves. A better part may give no better order of the items, so the parts in use are tried too.
    """
    in_use = (None, fast.prior, posterior)
    fitted = (estimator.model, estimator.held_out, posterior_with_estimator)
    priors = [fitted, in_use] if estimator.better else [in_use]
    for model, prior, weights in priors if current.may_use_posterior else ():
        if weights.better:
            yield model, weights.model, weights.held_out
        yield model, current.posterior, measured.routing_difficulty(current.posterior, prior, fast)
    for model, prior, _ in priors:
        yield model, None, prior


def _fit_fusion(votes: Votes, in_use: FusionFit, goal: Goal) -> FusionFit:
    """Fit β and skills to the votes of both paths that fuse.

    The rule in use stays unless a fitted one is significantly better. If the goal is accuracy, equal skills, which
    are a default, are replaced by any fit that is at least as accurate as majority voting and the best source.
    """
    columns = list(votes.sources)
    has_default_skills = not np.ptp(in_use.skills)
    if has_default_skills and goal.kind == "accuracy":
        rule = fit_fusion(votes)
    else:
        rule = fit_fusion(votes, replace(in_use, skills=in_use.skills[columns]))
    return replace(rule, skills=rule.skills[[columns.index(source) for source in sorted(set(columns))]])


def _simulate(evidence: Evidence, setup: Setup) -> tuple[Array, Ints]:
    """Return score, calls and cost of every item under a setup, a row each, and its path."""
    paths = setup.route(evidence.fast).path
    return np.stack(setup.outcomes(evidence).on_paths(paths)), paths


def _calls_and_cost(values: Array) -> tuple[Interval, Interval | None]:
    _, calls, cost = values
    known = not np.isnan(cost).any()
    return bootstrap_mean(calls, shares=False), bootstrap_mean(cost, shares=False) if known else None
