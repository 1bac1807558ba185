"""The paper's policy and the fixed choices, state by state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odar.policy.base import FixedPolicy
from odar.policy.paper import PaperPolicy
from odar.types import Assignment, Candidate, Estimate, Plan, Route, Stage, State, Step

PAIR = Assignment(models={"fast": "quick", "slow": "deep"})
ANSWER = Candidate(Step.ANSWER, "fast", "quick", "4", "4")


def plan(d: float, **changes) -> Plan:
    return replace(Plan(Estimate(d, "test"), PAIR), **changes)


def walk(policy, plan, failing=()) -> list[str]:
    """Return the stages that are asked if these agents give no answer."""
    state, asked = State(plan), []
    while (stage := policy.next_stage(state).stage) is not None:
        asked.append(str(stage))
        answering = stage.agents - set(failing)
        candidates = tuple(replace(ANSWER, agent=agent) for agent in answering)
        state = replace(
            state,
            stages=(*state.stages, stage),
            candidates=state.candidates + candidates,
            failed=state.failed | (stage.agents - answering),
        )
        assert len(asked) < 9
    return asked


@pytest.mark.parametrize(
    ("d", "stages"),
    [(0.29, ["fast"]), (0.3, ["fast", "slow:verify"]), (0.69, ["fast", "slow:verify"]), (0.7, ["fast+slow*5"])],
)
def test_two_thresholds_choose_the_path(d, stages):
    assert walk(PaperPolicy(), plan(d)) == stages


def test_an_expert_can_have_its_own_thresholds():
    policy = PaperPolicy(by_expert={"math": (0.0, 0.0)})
    assert walk(policy, plan(0.1, assignment=replace(PAIR, expert="math"))) == ["fast+slow*5"]
    assert "thresholds of math" in policy.choose_path(plan(0.1, assignment=replace(PAIR, expert="math")))[1]


def test_the_caller_chooses_the_path():
    assert walk(PaperPolicy(forced=Route.HARD, samples=3), plan(0.1)) == ["fast+slow*3"]


@pytest.mark.parametrize(
    ("d", "failing", "stages"),
    [
        (0.1, {"fast"}, ["fast", "slow"]),
        (0.5, {"fast"}, ["fast", "slow"]),
        (0.5, {"slow"}, ["fast", "slow:verify"]),
        (0.9, {"slow"}, ["fast+slow*5"]),
        (0.1, {"fast", "slow"}, ["fast", "slow"]),
        (0.5, {"fast", "slow"}, ["fast", "slow"]),
    ],
)
def test_an_agent_that_fails_is_replaced(d, failing, stages):
    assert walk(PaperPolicy(), plan(d), failing) == stages


def test_only_the_agent_that_sees_images_answers():
    alone = Assignment(models={"slow": "deep"})
    assert walk(PaperPolicy(), plan(0.9, assignment=alone)) == ["slow"]
    assert walk(PaperPolicy(), plan(0.1, assignment=alone, n=2)) == ["slow*2"]
    without_slow = Assignment(models={"fast": "quick", "second": "other"})
    assert walk(PaperPolicy(), plan(0.9, assignment=without_slow)) == ["fast"]
    assert walk(PaperPolicy(), plan(0.5, assignment=Assignment(models={"second": "other"}))) == ["second"]


def test_several_choices_for_the_client():
    assert walk(PaperPolicy(), plan(0.1, n=3)) == ["fast*3"]
    assert walk(PaperPolicy(), plan(0.5, n=3)) == ["fast", "slow:verify*3"]
    assert walk(PaperPolicy(), plan(0.9, n=7)) == ["fast+slow*7"]


def test_a_budget_lowers_the_path():
    policy = PaperPolicy()
    assert walk(policy, plan(0.9, max_path=Route.MEDIUM)) == ["fast", "slow:verify"]
    assert "does not fit the budget" in policy.choose_path(plan(0.9, max_path=Route.SIMPLE))[1]


def test_only_the_simple_path_streams():
    assert PaperPolicy().next_stage(State(plan(0.1))).final
    assert not PaperPolicy().next_stage(State(plan(0.5))).final
    assert not PaperPolicy().next_stage(State(plan(0.9))).final


def test_fixed_choices():
    assert walk(FixedPolicy.parse("slow*5"), plan(0.1)) == ["slow*5"]
    assert walk(FixedPolicy.parse("fast", "slow"), plan(0.9, n=2)) == ["fast", "slow*2"]
    assert walk(FixedPolicy.parse("slow"), plan(0.1), {"slow"}) == ["slow", "fast"]
    assert FixedPolicy.parse("slow").next_stage(State(plan(0.1))).final
    assert FixedPolicy((Stage.parse("fast"), Stage.parse("slow*2"))).name == "fast, slow*2"
