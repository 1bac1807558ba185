"""Skills without labels, and a belief fitted to labels (SPEC 9.3, 10.1)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from odar.lab.calibration.belief_fit import Answers, fit_with_labels
from odar.policy.belief import Agent, Belief
from odar.policy.cascade_values import draw_answers
from odar.policy.policies import CHEAP_SKILL, STRONG_SKILL
from odar.served.agreement import agreement, skills_from_agreement

BELIEF = Belief.load()
TRUE = (Agent("fast", 0.42, "gpt"), Agent("second", 0.47, "gemini"), Agent("slow", 0.70, "claude"))


def answers(size: int, seed: int = 1, belief: Belief = BELIEF) -> Answers:
    opinions, difficulty = draw_answers(belief, TRUE, plausible=10, size=size, seed=seed)
    right = [1.0 * (opinion.group == 0) for opinion in opinions]
    return Answers(opinions, right, 10, difficulty)


def expected(agents: tuple[Agent, ...]) -> list[Agent]:
    return [
        replace(agent, skill=skill)
        for agent, skill in zip(agents, (CHEAP_SKILL, CHEAP_SKILL, STRONG_SKILL), strict=True)
    ]


def test_agreement_grows_with_skill_and_with_few_plausible_answers() -> None:
    good = [replace(agent, skill=0.9) for agent in TRUE]
    assert agreement(BELIEF, good[0], good[1], 10) > agreement(BELIEF, TRUE[0], TRUE[1], 10)
    assert agreement(BELIEF, TRUE[0], TRUE[1], 2) > agreement(BELIEF, TRUE[0], TRUE[1], 10)


def test_skills_from_agreement_without_labels() -> None:
    given = answers(400)
    together = {
        (i, j, 10): (400.0, float((given.opinions[i].group == given.opinions[j].group).sum()))
        for i in range(3) for j in range(i)
    }  # fmt: skip
    found = skills_from_agreement(BELIEF, expected(TRUE), together)
    assert found[0] == pytest.approx(0.42, abs=0.08)
    assert found[1] == pytest.approx(0.47, abs=0.08)
    assert found[2] > found[1] + 0.1
    nothing = skills_from_agreement(BELIEF, expected(TRUE), {(1, 0, 10): (0.0, 0.0)})
    assert nothing == pytest.approx([0.45, 0.45, 0.77])


@pytest.mark.parametrize(("size", "near"), [(60, 0.12), (400, 0.06)])
def test_labels_give_skills(size: int, near: float) -> None:
    given = answers(size).with_skills({agent.name: agent.skill for agent in expected(TRUE)})
    belief, skills = fit_with_labels(BELIEF, [given])
    for agent, right in zip(TRUE, given.right, strict=True):
        assert skills[agent.name] == pytest.approx(float(right.mean()), abs=near)
    assert belief.weights["lure_options"] == BELIEF.weights["lure_options"], "few weights are fitted"


def test_labels_find_a_signal_that_says_more_than_usual() -> None:
    other = replace(BELIEF, weights={**BELIEF.weights, "long_hard": -2.5})
    given = answers(400, belief=other)
    found, _ = fit_with_labels(BELIEF, [given])
    assert found.weights["long_hard"] < BELIEF.weights["long_hard"] - 0.2


def test_a_few_labels_do_no_harm() -> None:
    """On other questions, 60 labels of agents as expected leave p about as good as before."""
    judged = answers(4000, seed=2)
    found, skills = fit_with_labels(BELIEF, [answers(60)])
    before, after = (
        np.mean([_loss(*pair) for pair in zip(*each, strict=True)])
        for each in (judged.predictions(BELIEF), judged.with_skills(skills).predictions(found))
    )
    assert after < before + 0.01


def _loss(logit: np.ndarray, true: np.ndarray) -> float:
    return float((np.logaddexp(0, logit) - true * logit).mean())
