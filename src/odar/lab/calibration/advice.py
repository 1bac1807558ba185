"""What each choice would cost on a user's traffic, and how often it gives slow's answer (SPEC 10.1, 10.2).

Without labels the slow model's answer is the reference. A cascade that ends with a slow call gives the reference
itself, so a second slow sample of some questions shows how often slow would have given another answer: the estimate
is the agreement on all questions, corrected by the mean difference on those with two samples. In the same way slow
agrees with itself as often as its second sample does. What counts is the excess over that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from odar.calibration_file import Calibration, Setting
from odar.errors import InputError
from odar.lab.calibration.compare import Comparison, Goal, best_choice, compare, fixed_choices, walk_all
from odar.lab.calibration.fit import MIN_BELIEF, answers_of, fit_calibration
from odar.lab.calibration.items import MIN_ITEMS, is_slow, scored_items, with_one_slow_answer
from odar.lab.intervals import Interval, bootstrap_mean, wilson_interval
from odar.lab.recording.schema import Attempt, ItemKey, RecordedItem, Task
from odar.lab.replay.outcomes import Outcomes
from odar.lab.replay.table import ReplayTable
from odar.planning import make_plan, value_of
from odar.policy.arrays import Bools
from odar.policy.belief import Belief
from odar.policy.dial import NAMES, Dial
from odar.policy.kinds import Kind, request_kind
from odar.served.agreement import skills_from_agreement
from odar.settings import Settings
from odar.types import FAST, SECOND, SLOW, Assignment, Estimate, Query, State, Step

MIN_KIND = 10
"""Minimum number of questions of a kind for a row of its own."""
MIN_DIFFERING = 10
"""Minimum number of differing answers for a bootstrap of an agreement that second samples correct."""
LEAD = 0.5
"""Standard errors by which a cascade must lead every fixed choice to be recommended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice(Comparison):
    """A comparison by right answers or by the same answer as slow; the strata are kinds of questions."""

    labelled: bool
    score_name: str
    """As in `ScoredItems`."""
    repeated: Bools
    """Which questions slow answered twice; if none, its agreement with itself is unknown."""
    table: ReplayTable
    """The questions, with the settings and the calibration that the choices were estimated with."""
    left_out: int
    """Questions whose reference was cut off or empty."""

    @property
    def repeats(self) -> int:
        return int(self.repeated.sum())

    def score(self, choice: Outcomes) -> Interval:
        if choice.name == SLOW and not self.labelled and not self.repeats:
            return Interval(np.nan, np.nan, np.nan)
        if self.repeats and (choice.score != 1).sum() < MIN_DIFFERING:
            # resampling hardly varies: as if only the questions with two samples were known
            return wilson_interval(min(1.0, max(0.0, choice.mean_score)), self.repeats)
        found = bootstrap_mean(choice.score, strata=self.strata, shares=not self.repeats)
        return Interval(*(min(1.0, max(0.0, each)) for each in found))

    def saving(self, choice: Outcomes) -> Interval:
        """The share of slow's cost that a choice saves; the interval is that of a ratio of means, linearised."""
        cost = choice.cost_usd
        slow = self.slow.cost_usd
        ratio = self.cost(choice)
        values = 1 - ratio - (cost - ratio * slow) / slow.mean()
        return bootstrap_mean(values, strata=self.strata, shares=False)

    def by_kind(self) -> dict[str, Advice]:
        kinds = np.array(self.strata)
        masks = {str(kind): kinds == kind for kind in sorted(set(self.strata))}
        return {kind: self.part(mask) for kind, mask in masks.items() if mask.sum() >= MIN_KIND}

    def part(self, rows: Bools) -> Advice:
        choices = tuple(each.rows(rows) for each in self.choices)
        strata = tuple(np.array(self.strata)[rows].tolist())
        return replace(self, choices=choices, strata=strata, repeated=self.repeated[rows])

    def choice_rows(self) -> list[dict[str, Any]]:
        """The figures of all choices, with intervals."""
        return [
            {
                "choice": each.name,
                "settings": dict(each.settings),
                "usd_per_1000": 1000 * each.mean_usd,
                "saving": self.saving(each),
                "score": self.score(each),
                "calls": float(each.calls.mean()),
                "best": each.name == self.best.name,
            }
            for each in self.choices
        ]

    def sentence(self) -> str:
        settings = self.table.settings
        slow = settings.agent(SLOW).model
        best = self.best
        if best.is_cascade:
            return f"Use the cascade at dial {best.settings['routing.dial']}: {self._figures(best, slow)}."
        # a fixed choice
        model = settings.agent(best.name).model if best.name in settings.agent_names else best.name
        alone = f"No cascade pays here: use {model} alone"
        if best.name != SLOW:
            alone += f": {self._figures(best, slow)}"
        # why not the nearest cascade
        cascades = [each for each in self.choices if each.is_cascade]
        nearest = max(cascades, key=self.goal.mean_worth)
        points = 100 * (best.mean_score - nearest.mean_score)
        extra_cost = 100 * (self.cost(nearest) - self.cost(best))
        what = "is right" if self.labelled else f"gives {slow}'s answer"
        change = f"{abs(points):.1f} points {'less' if points >= 0 else 'more'} often"
        cost = f"costs {abs(extra_cost):.0f}% of a slow call {'more' if extra_cost >= 0 else 'less'}"
        rate = f"{Dial.parse(self.goal.dial).points:g} points are worth one slow call of ordinary length"
        why = f"{what} {change} and {cost}"
        if abs(points) < 0.05 and abs(extra_cost) < 0.5:
            why = f"asks {model} too, nearly every time"
        chance = ""
        if self.goal.mean_worth(nearest) > self.goal.mean_worth(best):
            chance = " This cascade is ahead, but by so little that it may be chance: try more questions (--limit)."
        name = f"The nearest cascade ({nearest.settings['routing.dial']})"
        return f"{alone}. {name} {why}; at dial {self.goal.dial}, {rate}.{chance}"

    def _figures(self, choice: Outcomes, slow: str) -> str:
        saved = percent(self.saving(choice), digits=0)
        found = f"saves {saved}" if self.saving(choice).value >= 0 else f"costs {saved.replace('-', '')} more"
        if self.labelled:
            gain = self.gain(choice)
            against = f"{100 * gain.value:+.1f} points [{100 * gain.low:+.1f}, {100 * gain.high:+.1f}]"
            return f"{found}, right in {percent(self.score(choice))}, {against} against {slow}"
        itself = f"; how often {slow} repeats itself is unknown"
        if self.repeats:
            itself = f", as {slow} itself when asked twice in {percent(self.score(self.slow))}"
        return f"{found}, same answer as {slow} in {percent(self.score(choice))}{itself}"


def kind_of(item: RecordedItem) -> str:
    """The kind of a question; empty if its text is unknown."""
    if item.stratum in set(Kind):
        return item.stratum
    return request_kind(Query(item.query)).kind.value if item.query.strip() else ""


def percent(interval: Interval, digits: int = 1) -> str:
    """A share with its interval; a dash if it is unknown.

    >>> percent(Interval(0.921, 0.898, 0.94)), percent(Interval(0.58, 0.52, 0.63), 0)
    ('92.1% [89.8, 94.0]', '58% [52, 63]')
    """
    if np.isnan(interval.value):
        return "–"
    value, low, high = (f"{100 * each:.{digits}f}" for each in interval)
    return f"{value}% [{low}, {high}]"


def advise(items: Sequence[RecordedItem], settings: Settings, prompts: Mapping[Step, str], dial: str) -> Advice:
    """Compare all choices on recorded items, with labels if every item has one.

    Args:
        items: with an answer of every agent of the settings; some or all with several slow samples.
        settings: agents and models.
        prompts: the MD5 of each step's prompt.
        dial: what agreement is worth: the points for which one slow call of this traffic is bought.

    Raises:
        InputError: there are too few items.
    """
    # score the answers by labels, or by slow's first answer
    scored = scored_items(items)
    found = scored.items
    if not scored.labelled:
        found = scored_items([with_one_slow_answer(item) for item in items]).items
    if len(found) < MIN_ITEMS:
        raise InputError(
            f"{len(found)} questions have comparable answers of all agents; at least {MIN_ITEMS} are needed"
        )
    # the outcome of every choice
    table = ReplayTable(found, settings, prompts, Calibration())
    twice: dict[ItemKey, RecordedItem] = {}
    if scored.labelled:
        table, choices = _with_labels(table, dial)
    else:
        again = [item for item in items if sum(map(is_slow, item.attempts)) > 1]
        twice = {item.key: item for item in scored_items(again).items} if again else {}
        table, choices = _without_labels(table, twice)
    choices = sorted(choices, key=lambda choice: choice.mean_usd)
    # the one that is worth most
    slow = next(choice for choice in choices if choice.name == SLOW)
    goal = Goal(dial, slow.mean_usd)
    best = best_choice(choices, goal, lead=LEAD)
    return Advice(
        tuple(choices),
        best,
        goal,
        tuple(map(kind_of, found)),
        labelled=scored.labelled,
        score_name=scored.score_name,
        repeated=np.array([item.key in twice for item in found]),
        table=table,
        left_out=len(items) - len(found),
    )


def _with_labels(table: ReplayTable, dial: str) -> tuple[ReplayTable, list[Outcomes]]:
    comparison = compare(table, Goal(dial, table.reference_usd))
    fitted = fit_calibration(table, belief=comparison.fits_belief and len(table) >= MIN_BELIEF)
    shown = [
        each
        for each in comparison.choices
        if not each.is_cascade or (each.settings["routing.dial"] in NAMES and "routing.stages" not in each.settings)
    ]
    return table.replaced(calibration=fitted), shown


def _without_labels(
    table: ReplayTable, twice: Mapping[ItemKey, RecordedItem]
) -> tuple[ReplayTable, list[Outcomes]]:
    """Compare with the slow model's answer; `twice` are the items that it answered twice, without the reference."""
    table = table.replaced(calibration=agreement_calibration(table))
    others = [twice[item.key] for item in table.items if item.key in twice]
    if not others:
        return table, walk_all(table, _tried(table))
    is_part = len(others) < len(table)
    if is_part:  # the questions without a second sample could not be compared at two
        others = list(map(with_one_slow_answer, others))
    second = ReplayTable(others, table.settings, table.prompts, table.calibration)
    choices = walk_all(second, _tried(second))
    if is_part:
        repeated = np.array([item.key in twice for item in table.items])
        pairs = zip(walk_all(table, _tried(table)), choices, strict=True)
        choices = [_corrected(one, two, repeated) for one, two in pairs]
    return table, choices


def _tried(table: ReplayTable) -> list[dict[str, Setting]]:
    return fixed_choices(table) + [{"policy": "cascade", "routing.dial": dial} for dial in NAMES]


def _corrected(all_items: Outcomes, some: Outcomes, part: Bools) -> Outcomes:
    """A choice on all items, with a corrected score.

    Its mean is that of all items plus the mean change on those with two samples.
    """
    change = np.zeros(len(part))
    change[part] = (some.score - all_items.score[part]) * len(part) / part.sum()
    return replace(all_items, score=all_items.score + change)


def agreement_calibration(table: ReplayTable) -> Calibration:
    """Statistics of the items without labels: the skills are those that explain how often agents agree."""
    own = table.own_calibration()
    answers = answers_of(table)
    agents = list(table.agents.values())
    groups = [np.asarray(opinion.group) for opinion in answers.opinions[: len(agents)]]
    plausible = int(np.median(np.asarray(answers.plausible)))
    together = {}
    for i, one in enumerate(groups):
        for j, other in enumerate(groups[:i]):
            both = (one >= 0) & (other >= 0)
            together[i, j, plausible] = float(both.sum()), float((both & (one == other)).sum())
    skills = skills_from_agreement(Belief.load(), agents, together)
    statistics = dict(own.statistics)
    for agent, skill in zip(agents, skills, strict=True):
        source = table.source(agent.name)
        statistics[source] = replace(statistics[source], accuracy=round(skill, 4))
    return replace(own, statistics=statistics)


def advise_second(
    items: Sequence[RecordedItem],
    settings: Settings,
    prompts: Mapping[Step, str],
    dial: str,
    candidates: Mapping[str, str],
) -> tuple[Advice, dict[str, float]]:
    """The advice with the best second agent, or with none, and what each of them is worth, in points.

    That is what the best cascade with it is worth at the user's dial, beyond one slow call.

    Args:
        candidates: models that could be the second, by the agents that gave their answers.
        items, settings, prompts, dial: as for `advise`.
    """
    found = []
    for agent, model in (*candidates.items(), (None, "none")):
        advice = advise(*with_second(items, settings, agent, model), prompts, dial)
        cascades = [each for each in advice.choices if each.is_cascade]
        worth = max(map(advice.goal.mean_worth, cascades)) - advice.goal.mean_worth(advice.slow)
        found.append((model, 100 * worth, advice))
    _, _, best = max(found, key=lambda each: each[1])
    return best, {model: points for model, points, _ in found}


def with_second(
    items: Sequence[RecordedItem], settings: Settings, agent: str | None, model: str = ""
) -> tuple[list[RecordedItem], Settings]:
    """The items and settings in which this agent is the second, and no further ones take part."""
    kept = {FAST: FAST, SLOW: SLOW}
    second = None
    if agent is not None:
        kept[agent] = SECOND
        second = settings.fast.with_model(model)

    def renamed(attempt: Attempt) -> Attempt:
        name = kept[attempt.agent]
        return replace(attempt, agent=name, step=Step.ANSWER) if name == SECOND else attempt

    changed = [
        replace(item, attempts=tuple(renamed(each) for each in item.attempts if each.agent in kept))
        for item in items
    ]
    return changed, replace(settings, second=second, agents={})


def one_call_costs(advice: Advice, tasks: Sequence[Task], difficulty: Callable[[Query], float]) -> dict[str, Any]:
    """What requests without a comparable answer cost at one call each, by estimated lengths.

    The recommended choice asks one agent; nothing says whether its answer is as good as slow's.
    """
    table = advice.table
    settings = table.settings
    cards = {agent: settings.card(model) for agent, model in settings.default_models.items()}
    models = {agent: card.name for agent, card in cards.items()}
    dial = Dial.parse(str(advice.best.settings.get("routing.dial", advice.goal.dial)))
    policy = table.policy_of(replace(settings, policy=str(advice.best.settings["policy"])))
    chosen: list[str] = []
    costs: list[tuple[float, float]] = []
    for task in tasks:
        estimate = Estimate(difficulty(task.query), settings.routing.estimator)
        plan = make_plan(task.query, estimate, Assignment("general", models=models), cards, dial)
        value = value_of(plan, dial, table.reference_usd)
        stage = policy.next_stage(State(replace(plan, value_usd=value))).stage
        agent = stage.asks[0].agent if stage is not None else SLOW
        chosen.append(agent)
        costs.append((plan.prices[agent], plan.prices[SLOW]))
    cost, slow_cost = 1000 * np.mean(costs, axis=0)
    return {
        "requests": len(tasks),
        "to": {agent: chosen.count(agent) for agent in table.agents if agent in chosen},
        "usd_per_1000": float(cost),
        "slow_usd_per_1000": float(slow_cost),
    }
