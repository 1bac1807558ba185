"""What is fitted to a user's agents: statistics of each source, skills, and the weights of the belief.

Fits start from the shipped values and stay near them, because a user has a few hundred items.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from odar.calibration_file import Calibration, Source, Statistics
from odar.lab.calibration.belief_fit import LABEL_DEVIATIONS, Answers, fit_with_labels
from odar.lab.replay.table import ReplayTable
from odar.policy.arrays import Bools
from odar.policy.belief import SKILL_RANGE, Agent, Belief, chance_level, without_guesses
from odar.types import SLOW, Ask, Stage

MIN_BELIEF = 100
"""Minimum number of items for a fit of the belief; with fewer, only statistics are measured."""
SKILL_ITEMS = 12
"""Items that the skill of an agent, as known before, counts as."""
KIND_ITEMS = 12
"""Items that the skill of an agent on all questions counts as, for its skill on one kind."""


def fit_calibration(table: ReplayTable, rows: Bools, *, belief: bool) -> Calibration:
    """Fit statistics and skills, and with `belief` its weights and skills by kind of question, to some items.

    Args:
        table: with an empty calibration, so that its agents have the skills that are known without items.
        rows: the items.
        belief: whether to fit the belief.
    """
    calibration = Calibration(statistics=fit_statistics(table, rows))
    if not belief:
        return calibration
    weights, skills = fit_with_labels(
        Belief.load(), [answers_of(table.replaced(rows=rows, calibration=calibration))]
    )
    statistics = dict(calibration.statistics)
    for agent, skill in skills.items():
        by_kind = fit_kinds(table, rows, replace(table.agents[agent], skill=skill), weights)
        source = default_source(table, agent)
        statistics[source] = replace(statistics[source], accuracy=round(skill, 4), accuracy_by_kind=by_kind)
    fitted = {name: round(weights.weights[name], 4) for name in LABEL_DEVIATIONS}
    return Calibration(statistics=statistics, belief=fitted)


def fit_kinds(table: ReplayTable, rows: Bools, agent: Agent, belief: Belief) -> dict[str, float]:
    """The skill of an agent on each kind of question.

    With it the belief expects as many right answers, before any call, as the agent gave.

    What it expects without kinds counts as `KIND_ITEMS` items, so that a kind of few items stays near it; unseen
    kinds have no entry.
    """
    kinds = np.array(table.kinds)
    scores = table.scores(agent.name)
    questions, _ = table.evidence_after()
    tried = np.linspace(*SKILL_RANGE, 49)
    found = {}
    for kind in sorted(set(kinds[rows].tolist())):
        own = rows & (kinds == kind)
        evidence = replace(questions, plausible=questions.plausible[own], difficulty=questions.difficulty[own])
        posterior = belief.posterior(evidence)
        expected = [float(posterior.q(replace(agent, skill=skill)).mean()) for skill in (agent.skill, *tried)]
        right = (scores[own].sum() + KIND_ITEMS * expected[0]) / (own.sum() + KIND_ITEMS)
        found[kind] = round(float(np.interp(right, expected[1:], tried)), 4)
    return found


def fit_statistics(table: ReplayTable, rows: Bools) -> dict[Source, Statistics]:
    """Statistics of every source; the accuracies of agents are shrunk towards what was known before."""
    found = table.fitted_statistics(rows)
    items = int(np.count_nonzero(rows))
    guess = float(np.mean(chance_level(table.evidence_after()[0].plausible[rows])))
    for name, agent in table.agents.items():
        source = default_source(table, name)
        if (known := found.get(source)) is not None and known.accuracy is not None:
            skill = float(without_guesses(known.accuracy, guess, known.unanswered))
            skill = (items * skill + SKILL_ITEMS * agent.skill) / (items + SKILL_ITEMS)
            found[source] = replace(known, accuracy=round(skill, 4))
    return found


def default_source(table: ReplayTable, agent: str) -> Source:
    """The source of the answers that an agent's default model gives at its usual step."""
    return table.source(agent, table.settings.agent(agent).model, Ask(agent).step)


def log_losses(table: ReplayTable, belief: Belief) -> np.ndarray:
    """The mean log loss of p and q on each item, over the states of `answers_of`."""
    logits, true = answers_of(table).predictions(belief)
    losses = [np.logaddexp(0, logit) - right * logit for logit, right in zip(logits, true, strict=True)]
    return np.asarray(np.mean(losses, axis=0))


def answers_of(table: ReplayTable) -> Answers:
    """What a belief is fitted to: one answer of every agent to each item, and a second of slow if there is one."""
    asked = [Stage((Ask(agent),)) for agent in table.agents]
    if table.samples(SLOW) > 1:
        asked.append(Stage((Ask(SLOW),)))
    evidence, right = table.evidence_after(asked)
    return Answers(evidence.opinions, list(right.T.astype(np.float64)), evidence.plausible, evidence.difficulty)
