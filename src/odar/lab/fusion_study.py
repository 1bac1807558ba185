"""Every fusion rule, and the belief, applied to the candidates of a recording: all answers except verifications.

Of an agent that answered some items more often than others, as many answers count as every item has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from odar.lab.intervals import Interval, bootstrap_mean
from odar.lab.replay.table import ReplayTable
from odar.policy.arrays import Array
from odar.policy.base import FixedPolicy
from odar.policy.fusion import Fusion
from odar.policy.fusion_rules import RULES
from odar.policy.policies import choose_policy

MIN_QUESTIONS = 30
"""Minimum number of questions for cross-validation."""
ARGMIN = "fep β=inf (argmin)"
"""The paper's rule, the single candidate of lowest free energy."""


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The accuracy of one rule, and its difference to two others."""

    rule: str
    accuracy: Interval
    against_majority: Interval
    """Paired difference to majority voting."""
    against_argmin: Interval
    """Paired difference to the paper's rule."""


def apply_rules(table: ReplayTable, beta: float) -> list[RuleResult]:
    """Compare every registered rule, `fep` with this β, the paper's argmin, the belief, and the mean candidate.

    The belief is shown with the skills that are known without labels and, if there are enough questions, with
    skills measured on the other folds.
    """
    similarity = table.settings.fusion.similarity
    everything = FixedPolicy((table.all_answers,))
    rules = {f"fep β={beta:g}": Fusion("fep", beta), ARGMIN: Fusion("fep")}
    rules |= {name: Fusion(name) for name in sorted(RULES.names()) if name != "fep"}
    right = {
        name: table.walk(everything, fusion=replace(rule, similarity=similarity)).right.astype(float)
        for name, rule in rules.items()
    }
    right["belief"] = belief_right(table)
    if len(table) >= MIN_QUESTIONS:
        right["belief, skills fitted"] = cross_validated_belief_right(table)
    right["mean candidate"] = table.evidence_after([table.all_answers])[1].mean(axis=1)
    return [
        RuleResult(
            name,
            bootstrap_mean(each),
            bootstrap_mean(each - right["majority"], shares=False),
            bootstrap_mean(each - right[ARGMIN], shares=False),
        )
        for name, each in right.items()
    ]


def belief_right(table: ReplayTable) -> Array:
    """1 for each question on which the leading answer of the belief is right, else 0."""
    cascade = choose_policy(replace(table.settings, policy="cascade"), table.calibration, table.agents)
    return table.walk(FixedPolicy((table.all_answers,)), verdict=cascade.verdict).right.astype(float)


def cross_validated_belief_right(table: ReplayTable) -> Array:
    """`belief_right` with the skills of the agents on the other folds of the recording."""
    right = np.zeros(len(table))
    folds = np.array(table.column("fold"))
    for fold in np.unique(folds):
        test = folds == fold
        statistics = table.replaced(rows=~test).fitted_statistics()
        calibration = replace(table.calibration, statistics=statistics)
        right[test] = belief_right(table.replaced(rows=test, calibration=calibration))
    return right


def fitted_skills(table: ReplayTable) -> Mapping[str, float]:
    """The skill of each agent, measured on all questions."""
    own = table.replaced(calibration=replace(table.calibration, statistics=table.fitted_statistics()))
    return {name: agent.skill for name, agent in own.agents.items() if table.samples(name)}


def oracle_accuracy(table: ReplayTable) -> float:
    """The share of questions with a right candidate, an upper bound for every rule."""
    return float(table.evidence_after([table.all_answers])[1].any(axis=1).mean())
