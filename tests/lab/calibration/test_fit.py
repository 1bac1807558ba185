from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

from odar.lab.calibration.fit import SKILL_ITEMS, Answers, fit_calibration, fit_with_labels, log_losses
from odar.policy.belief import Belief, RatedAgent
from odar.policy.cascade_values import draw_answers
from odar.policy.policies import CHEAP_SKILL, STRONG_SKILL
from odar.served.agreement import agreement, skills_from_agreement
from odar.types import FAST, SECOND, SLOW
from support.population import population, table

BELIEF = Belief.load()
TRUE = (RatedAgent("fast", 0.42, "gpt"), RatedAgent("second", 0.47, "gemini"), RatedAgent("slow", 0.70, "claude"))


@functools.cache
def many():
    return table(population(900, fast=0.45, slow=0.6, samples=2))


def test_skills_are_measured_and_shrunk_towards_what_was_known():
    few = table(population(60, fast=0.45, slow=0.6, samples=2))
    fitted = fit_calibration(few, belief=False)
    assert fitted.belief is None and not fitted.settings
    for agent in (FAST, SECOND, SLOW):
        measured = few.scores(agent).mean()
        before = few.agents[agent].skill
        known = fitted.statistics[few.source(agent)]
        assert known.accuracy == pytest.approx(
            (60 * measured + SKILL_ITEMS * before) / (60 + SKILL_ITEMS), abs=1e-3
        )
        assert known.count == (120 if agent == SLOW else 60)
        assert few.replaced(calibration=fitted).agents[agent].skill == known.accuracy


@pytest.mark.parametrize(("slow", "context"), [("deep@high", None), ("deep", 100)])
def test_the_skill_of_a_model_with_its_own_token_limit_is_found(slow, context):
    """Reasoning raises the limit of an answer, and a small context lowers it."""
    items = [
        replace(item, attempts=tuple(replace(a, model=slow) if a.agent == SLOW else a for a in item.attempts))
        for item in population(60)
    ]
    told = table(items, slow__model=slow)
    deep = replace(told.settings.models["deep"], context=context)
    told = told.replaced(settings=replace(told.settings, models={**told.settings.models, "deep": deep}))
    fitted = fit_calibration(told, belief=False)
    skill = told.replaced(calibration=fitted).agents[SLOW].skill
    assert skill == fitted.statistics[told.source(SLOW)].accuracy != told.agents[SLOW].skill
    assert told.source(SLOW).max_tokens != told.settings.slow.max_tokens


def test_a_fitted_belief_predicts_other_items_better():
    """These agents are worse than any known skill says: the shipped belief is too sure of them."""
    items = many()
    train = np.arange(len(items)) < 400
    fitted = fit_calibration(items.replaced(rows=train), belief=True)
    plain = table(items.items).replaced(rows=~train)
    before = log_losses(plain)
    after = log_losses(plain.replaced(calibration=fitted))
    gain = before - after
    assert gain.mean() > 3 * gain.std() / np.sqrt(len(gain))


def test_a_fit_to_few_items_stays_near_the_shipped_weights():
    items = many()
    shipped = Belief.load().weights
    few = fit_calibration(items.replaced(rows=np.arange(100)), belief=True).load_belief().weights
    assert abs(few["p_offset"] - shipped["p_offset"]) < 0.5
    assert abs(few["q_offset"] - shipped["q_offset"]) < 0.5
    assert few["spread"] == shipped["spread"]


def test_skills_by_kind_follow_the_items_and_a_kind_of_few_items_stays_near_the_skill_on_all():
    good = [replace(item, query=f"Is {i} a prime number?") for i, item in enumerate(population(120, fast=0.9))]
    few = [replace(item, query="How many legs has a spider?") for item in population(4, seed=1, fast=0.9)]
    items = table([*population(120, seed=2, fast=0.3), *good, *few])
    fitted = fit_calibration(items, belief=True)
    known = fitted.statistics[items.source(FAST)]
    assert set(known.accuracy_by_kind) == {"short answer", "yes/no", "number"}
    assert known.accuracy_by_kind["short answer"] < known.accuracy - 0.05
    assert known.accuracy_by_kind["yes/no"] > known.accuracy + 0.1
    assert abs(known.accuracy_by_kind["number"] - known.accuracy) < 0.12
    agent = items.replaced(calibration=fitted).agents[FAST]
    assert agent.on("yes/no").skill == known.accuracy_by_kind["yes/no"]
    assert agent.on("choice") is agent


def test_questions_without_an_answer_are_counted():
    items = population(120, fast=0.98)
    silenced = [
        replace(item, attempts=tuple(_without_answer(each) for each in item.attempts)) if i % 3 == 0 else item
        for i, item in enumerate(items)
    ]
    told = table(silenced)
    calibration = fit_calibration(told, belief=False)
    assert calibration.statistics[told.source(FAST)].unanswered == pytest.approx(1 / 3, abs=1e-3)
    fast = told.replaced(calibration=calibration).agents[FAST]
    assert fast.unanswered == pytest.approx(1 / 3, abs=1e-3)
    assert told.replaced(calibration=calibration).agents[SLOW].unanswered == 0


def _without_answer(attempt):
    return replace(attempt, text="", answer="", score=0.0, stated=False) if attempt.agent == FAST else attempt


def answers(size: int, seed: int = 1, belief: Belief = BELIEF) -> Answers:
    opinions, difficulty = draw_answers(belief, TRUE, plausible=10, size=size, seed=seed)
    right = [1.0 * (opinion.group == 0) for opinion in opinions]
    return Answers(opinions, right, 10, difficulty)


def expected(agents: tuple[RatedAgent, ...]) -> list[RatedAgent]:
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
