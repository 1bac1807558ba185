"""Skills that follow from how often agents agree, without labels (SPEC 10.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from odar.policy.arrays import Array
from odar.policy.belief import DENSITY, NODES, SKILL_RANGE, Agent, Belief, Opinion, chance_level, logit, sigmoid

COMMON_DEVIATION = 0.6
"""Deviation of the logits of skills that all agents share: a user's questions may be harder than expected."""
OWN_DEVIATION = 0.25
"""Deviation of the logit of each skill beyond that."""
STEPS = 8
"""Maximum number of steps of a fit."""


def skills_from_agreement(
    belief: Belief,
    agents: Sequence[Agent],
    together: Mapping[tuple[int, int, int], tuple[float, float]],
) -> list[float]:
    """Skills that explain how often agents agree, without labels.

    Args:
        belief: gives how often agents of some skill agree.
        agents: with the skills to start from and to stay near.
        together: for two numbers of agents and a number of plausible answers, how many questions both answered, and
            on how many they agreed.
    """
    pairs = list(together)
    asked = np.array([together[pair][0] for pair in pairs], dtype=np.float64)
    agreed = np.array([together[pair][1] for pair in pairs], dtype=np.float64)
    start = logit(np.array([agent.skill for agent in agents]))

    def changed(x: Array) -> list[Agent]:
        """Skills differ from the expected ones by what is common to all agents, and by what is their own."""
        return [replace(a, skill=sigmoid(at + x[0] + own)) for a, at, own in zip(agents, start, x[1:], strict=True)]

    def predicted(x: Array) -> Array:
        known = changed(x)
        found: Array = logit(np.array([agreement(belief, known[i], known[j], many) for i, j, many in pairs]))
        return found

    share = agreed / np.maximum(asked, 1)
    deviation = np.array([COMMON_DEVIATION, *[OWN_DEVIATION] * len(agents)])
    found = gauss_newton(predicted, np.zeros(len(deviation)), deviation, share, asked)
    low, high = SKILL_RANGE
    return [min(high, max(low, float(agent.skill))) for agent in changed(found)]


def agreement(belief: Belief, one: Agent, other: Agent, plausible: int) -> float:
    """The share of questions, of those that both answer, on which two agents are expected to agree."""
    spread = belief.weights["spread"]
    equal_if_wrong = 1 / (1 + belief.variety(plausible))
    guess = chance_level(plausible)
    both = 0.0
    total = 0.0
    eases = [-spread * node for node in NODES]
    first, second = (belief.chances(agent, eases, 0.0, guess) for agent in (one, other))
    for density, (answers, a), (also, b) in zip(DENSITY, first, second, strict=True):
        both += density * answers * also
        total += density * answers * also * (a * b + (1 - a) * (1 - b) * equal_if_wrong)
    repeat, _ = belief.repeats(other, [Opinion(one, 0)])
    return repeat + (1 - repeat) * total / both


def gauss_newton(
    predicted: Callable[[Array], Array], start: Array, deviation: Array, true: Array, weight: Array
) -> Array:
    """The x with the least log loss of σ(predicted(x)), near `start`."""

    def loss(x: Array, logits: Array) -> float:
        misfit = weight * (np.logaddexp(0, logits) - true * logits)
        return float(misfit.sum() + 0.5 * (((x - start) / deviation) ** 2).sum())

    x = start
    logits = predicted(x)
    best = loss(x, logits)
    for _ in range(STEPS):
        nudges = np.eye(len(x)) * 1e-3
        slopes = np.column_stack([(predicted(x + nudge) - logits) / 1e-3 for nudge in nudges])  # (N, X)
        p = sigmoid(logits)
        gradient = slopes.T @ (weight * (true - p)) - (x - start) / deviation**2
        curvature = (slopes.T * (weight * p * (1 - p))) @ slopes + np.diag(1 / deviation**2)
        step = np.linalg.solve(curvature, gradient)
        for size in (1.0, 0.5, 0.25, 0.1, 0.03):
            moved = predicted(x + size * step)
            if (now := loss(x + size * step, moved)) < best:
                break
        else:
            break
        gained = best - now
        best = now
        x = x + size * step
        logits = moved
        if gained < 1e-6 * max(1.0, abs(best)):
            break
    return x
