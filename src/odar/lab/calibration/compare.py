"""Cascades and fixed choices compared on held-out items, and the choice that is best for the user (SPEC 9.8).

A choice is some settings, and its outcome on the items. Whatever is fitted comes from other items than those that a
choice is judged on. Costs count every call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from odar.calibration_file import Calibration, Setting
from odar.config import with_values
from odar.errors import InputError
from odar.lab.calibration.fit import MIN_BELIEF, fit_calibration, log_losses
from odar.lab.intervals import Interval, bootstrap_mean
from odar.lab.replay.outcomes import Outcomes, concatenate, mean_outcomes
from odar.lab.replay.policies import THRESHOLDS
from odar.lab.replay.table import ReplayTable
from odar.policy.arrays import Array
from odar.policy.cascade import default_stages
from odar.policy.dial import Dial
from odar.types import FAST, SLOW, Stage

SEED = 42
FOLDS = 5
DIALS = ("1", "2", "quality", "5", "7", "balanced", "14", "19", "economy", "35", "50", "100")
"""Dials that are compared, the most expensive first."""
_NO_OTHER_DIAL = dict.fromkeys(("routing.value_usd", "routing.target_calls", "routing.target_cost_usd"))
"""Dollars or a target of the user would take the place of the dials that are compared."""
SELF_CONSISTENCY = (3, 5)
"""Numbers of slow samples of the fixed choices."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a choice is judged by: what a right answer is worth, within limits."""

    dial: str
    """The dial of the user, one of `DIALS` or points."""
    reference_usd: float
    """The price of one slow call, the unit of the dial."""
    max_calls: float | None = None
    """Maximum of the mean calls of a question."""
    max_cost_usd: float | None = None

    def allows(self, choice: Outcomes) -> bool:
        within_calls = self.max_calls is None or choice.calls.mean() <= self.max_calls
        return within_calls and (self.max_cost_usd is None or choice.mean_usd <= self.max_cost_usd)

    def worth(self, choice: Outcomes) -> Array:
        """What a choice is worth on each item, in right answers: its score, less its cost."""
        return choice.score - choice.cost_usd / Dial.parse(self.dial).value(self.reference_usd)

    def mean_worth(self, choice: Outcomes) -> float:
        return float(self.worth(choice).mean())


@dataclass(frozen=True, slots=True)
class Comparison:
    """All choices on the same items, and the one that is worth most for the goal."""

    choices: tuple[Outcomes, ...]
    """From the cheapest to the most expensive."""
    best: Outcomes
    goal: Goal
    strata: tuple[str, ...]
    """The set or the kind of each item, for stratified intervals."""
    fits_belief: bool = False
    """Whether a belief with fitted weights predicts held-out items better than the shipped one."""

    @property
    def slow(self) -> Outcomes:
        """One slow call, as the mean over its samples: the baseline."""
        return next(choice for choice in self.choices if choice.name == SLOW)

    def frontier(self) -> list[Outcomes]:
        """All fixed choices, and the cascades that no cheaper cascade equals; from cheap to expensive."""
        shown = []
        most = -np.inf
        for choice in self.choices:
            if not choice.is_cascade or choice is self.best or choice.mean_score > most + 1e-9:
                shown.append(choice)
            most = max(most, choice.mean_score) if choice.is_cascade else most
        return shown

    def score(self, choice: Outcomes) -> Interval:
        return bootstrap_mean(choice.score, strata=self.strata)

    def gain(self, choice: Outcomes) -> Interval:
        return bootstrap_mean(choice.score - self.slow.score, strata=self.strata, shares=False)

    def cost(self, choice: Outcomes) -> float:
        """Mean cost, relative to one slow call."""
        return choice.mean_usd / self.slow.mean_usd

    def to_rows(self, choices: Sequence[Outcomes]) -> list[dict[str, Any]]:
        return [
            {
                "choice": each.name,
                "settings": dict(each.settings),
                "score": _rounded(self.score(each)),
                "gain": _rounded(self.gain(each)),
                "cost_usd": round(each.mean_usd, 9),
                "cost": round(self.cost(each), 4),
                "calls": round(float(each.calls.mean()), 4),
                "best": each is self.best,
            }
            for each in choices
        ]

    def recommendation(self, score_name: str) -> str:
        """The best choice in one sentence, with the nearest cascade if that is a fixed choice."""
        best = self.best
        if best.is_cascade:
            stages = best.settings.get("routing.stages")
            order = f", stages {', '.join(stages)}" if isinstance(stages, list) else ""
            choice = f"Use the cascade at dial {best.settings['routing.dial']}{order}"
        elif best.settings["policy"] == "paper":
            choice = "Use the paper's policy"
        else:
            alone = "alone" if best.name == SLOW else "for every question"
            choice = f"No cascade pays here, use {best.name} {alone}"
        sentence = f"{choice}: {score_name} in {best.mean_score:.1%}"
        if best.name != SLOW:
            sentence += f", {self.gain(best).signed()} against one slow call, at {self.cost(best):.2f} of its cost"
        allowed = [each for each in self.choices if each.is_cascade and self.goal.allows(each)]
        if best.is_cascade or not allowed:
            return f"{sentence}."
        nearest = max(allowed, key=self.goal.mean_worth)
        cost = self.cost(nearest)
        return f"{sentence}; the best cascade for this dial has {nearest.mean_score:.1%} at {cost:.2f}."


def compare(table: ReplayTable, goal: Goal) -> Comparison:
    """Compare all choices on folds that nothing was fitted to.

    Args:
        table: the items, with an empty calibration.
        goal: what the best choice is best for.

    Raises:
        InputError: no choice keeps to the limits.
    """
    # each fold with a calibration of the other folds
    number = np.random.default_rng(SEED).permutation(len(table)) % FOLDS
    folds = [number == fold for fold in range(FOLDS)]
    others = [table.replaced(rows=~fold) for fold in folds]

    def fit_folds(*, belief: bool) -> list[ReplayTable]:
        fits = [fit_calibration(other, belief=belief) for other in others]
        return [table.replaced(rows=fold, calibration=fit) for fold, fit in zip(folds, fits, strict=True)]

    held_out = fit_folds(belief=False)
    # a fitted belief, if it predicts the held-out folds better
    fits_belief = False
    if len(table) >= MIN_BELIEF:
        fitted = fit_folds(belief=True)
        before, after = (np.concatenate(list(map(log_losses, each))).mean() for each in (held_out, fitted))
        fits_belief = bool(after < before)
        held_out = fitted if fits_belief else held_out
    # every choice on the held-out folds
    tried = all_settings(table, goal.dial)
    found = [walk_all(each, tried) for each in held_out]
    choices = [concatenate(parts, folds) for parts in zip(*found, strict=True)]
    choices.sort(key=lambda choice: choice.mean_usd)
    best = best_choice(choices, goal, table.settings.policy)
    return Comparison(tuple(choices), best, goal, tuple(item.key.set for item in table.items), fits_belief)


def best_choice(choices: Sequence[Outcomes], goal: Goal, policy: str = "cascade", lead: float = 0.0) -> Outcomes:
    """The choice that is worth most for the goal.

    A cascade is chosen only if it is worth more than every fixed choice, by `lead` standard errors. Among the dials
    of the best cascade that are within a standard error of the best, the one nearest to the user's is chosen.
    With `policy` = "paper" only its thresholds are compared.

    Raises:
        InputError: no choice keeps to the limits.
    """
    allowed = [choice for choice in choices if goal.allows(choice)]
    if not allowed:
        least = min(choices, key=lambda each: each.mean_usd)
        raise InputError(
            f"no choice keeps to the limits; the cheapest is {least.name} with {least.calls.mean():.2f} calls and "
            f"${least.mean_usd:.6f} for a question"
        )
    worth = goal.mean_worth
    if policy == "paper":
        return max((each for each in allowed if each.settings["policy"] == "paper"), key=worth, default=allowed[0])
    best = max(allowed, key=worth)
    fixed = max((each for each in allowed if not each.is_cascade), key=worth, default=None)
    if not best.is_cascade or (fixed is not None and not _leads(best, fixed, goal, lead)):
        return fixed or best
    same = [each for each in allowed if each.is_cascade and each.cascade_name == best.cascade_name]
    equal = [
        each
        for each in same
        if (fixed is None or worth(each) > worth(fixed)) and not _leads(best, each, goal, 1.0, least=0.001)
    ]
    own = math.log(Dial.parse(goal.dial).points)
    return min(equal, key=lambda each: (abs(math.log(each.points) - own), -worth(each)))


def _leads(best: Outcomes, other: Outcomes, goal: Goal, errors: float, least: float = 0.0) -> bool:
    """Whether a choice is worth more than another by some standard errors, and by at least so much."""
    lead = goal.worth(best) - goal.worth(other)
    return bool(lead.mean() > max(least, errors * lead.std() / np.sqrt(len(lead))))


def all_settings(table: ReplayTable, dial: str) -> list[dict[str, Setting]]:
    """Everything that is compared: fixed choices, the paper's policy (SPEC 2.7), and each cascade at each dial."""
    found = fixed_choices(table)
    needed = (FAST, f"{SLOW}:verify", f"{SLOW}*{table.settings.routing.samples}")
    if all(table.has(Stage.parse(stage)) for stage in needed):
        grid = THRESHOLDS if table.settings.policy == "paper" else ()
        found += [{"policy": "paper", "routing.tau1": tau1, "routing.tau2": tau2} for tau1, tau2 in grid]
        found += [] if grid else [{"policy": "paper"}]
    dials = dict.fromkeys((*DIALS, dial))
    return found + [{**stages, "routing.dial": each} for stages in cascades(table) for each in dials]


def fixed_choices(table: ReplayTable) -> list[dict[str, Setting]]:
    """Each agent alone, and self-consistency of slow, as far as there are answers."""
    names = [*table.agents, *(f"{SLOW}*{count}" for count in SELF_CONSISTENCY)]
    return [{"policy": name} for name in names if table.has(Stage.parse(name))]


def cascades(table: ReplayTable) -> list[dict[str, Setting]]:
    """The cascades that are compared: that of the settings, and one with several slow samples in one request.

    Samples of one request share its prompt, so that five can cost less than two requests. One slow call and the
    request for several are alternatives: `routing.samples` is the most of both together.
    """
    settings = table.settings
    found: list[dict[str, Setting]] = [{"policy": "cascade"}]
    samples = min(max(SELF_CONSISTENCY), table.samples(SLOW))
    if not settings.routing.stages and settings.card(settings.agent(SLOW).model).n and samples > 2:
        cheap = [str(stage) for stage in default_stages(table.agents) if SLOW not in stage.agents]
        most = {} if samples == settings.routing.samples else {"routing.samples": samples}
        found.append({"policy": "cascade", "routing.stages": [*cheap, SLOW, f"{SLOW}*{samples}"], **most})
    return found


def walk_all(table: ReplayTable, tried: Sequence[Mapping[str, Setting]]) -> list[Outcomes]:
    """The outcome of each of these settings: the mean over runs that begin with another sample."""
    found = []
    for settings in tried:
        effective = with_values(table.settings, {**_NO_OTHER_DIAL, **settings})
        policy = table.policy_of(effective)
        first = range(max(1, table.samples(SLOW)))
        runs = [table.walk(policy, dial=effective.dial(), first_sample=each) for each in first]
        found.append(replace(mean_outcomes(runs), settings=settings, name=choice_name(settings)))
    return found


def choice_name(settings: Mapping[str, Setting]) -> str:
    """The name of a choice in tables.

    >>> choice_name({"policy": "cascade", "routing.stages": ["fast", "slow*5"], "routing.dial": "7"})
    'cascade*5 7'
    """
    policy = str(settings["policy"])
    if policy == "cascade":
        stages = settings.get("routing.stages", ())
        samples = f"*{Stage.parse(stages[-1]).calls}" if isinstance(stages, list) else ""
        return f"cascade{samples} {settings['routing.dial']}"
    return f"paper {settings['routing.tau1']}, {settings['routing.tau2']}" if "routing.tau1" in settings else policy


def _rounded(interval: Interval) -> dict[str, float]:
    return {name: round(value, 5) for name, value in interval._asdict().items()}


def chosen_calibration(table: ReplayTable, comparison: Comparison) -> Calibration:
    """The best choice as settings, with statistics, skills and belief fitted to all items.

    With a fixed choice the stages of the cascade are kept too: a caller who names a dial gets the cascade.
    """
    fitted = fit_calibration(table, belief=comparison.fits_belief)
    settings = dict(comparison.best.settings)
    if not comparison.best.is_cascade and settings["policy"] != "paper":
        settings = {**cascades(table)[-1], **settings}
    return replace(fitted, settings=settings)
