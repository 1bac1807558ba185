"""The cascade: when it stops, skips stages, and takes one call."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.policy.belief import Belief, Opinion, RatedAgent
from odar.policy.cascade import CascadePolicy, default_stages
from odar.types import Assignment, Candidate, Estimate, Plan, Route, Stage, State, Step

AGENTS = {
    "fast": RatedAgent("fast", 0.6, "gpt"),
    "second": RatedAgent("second", 0.6, "gemini"),
    "slow": RatedAgent("slow", 0.85, "claude"),
}
MODELS = {"fast": "a", "second": "b", "slow": "c"}
PLAN = Plan(
    Estimate(0.4, "test"),
    Assignment(models=MODELS),
    "cascade",
    prices={"fast": 0.001, "second": 0.001, "slow": 0.01},
    value_usd=0.1,
)
POLICY = CascadePolicy(default_stages(AGENTS), AGENTS, Belief.load())


def state(*groups: tuple[str, int], **changes) -> State:
    """A state in which these agents gave these answers, one stage each."""
    candidates = tuple(
        Candidate(Step.ANSWER if agent != "slow" else Step.SOLVE, agent, MODELS[agent], str(group), str(group))
        for agent, group in groups
    )
    opinions = tuple(Opinion(AGENTS[agent], group) for agent, group in groups)
    stages = tuple(POLICY.stages[i] for i in range(len(groups)))
    return State(replace(PLAN, **changes), stages, candidates, opinions=opinions)


def asked(*groups, **changes) -> str:
    return str(POLICY.next_stage(state(*groups, **changes)).stage)


def test_agreement_of_two_cheap_models_stops():
    decision = POLICY.next_stage(state(("fast", 0), ("second", 0)))
    assert decision.stage is None and decision.p > 0.85


def test_disagreement_asks_the_slow_model_whose_answer_decides():
    assert asked(("fast", 0), ("second", 1)) == "slow"
    verdict = POLICY.verdict(state(("fast", 0), ("second", 1), ("slow", 1)))
    assert verdict.winner == 2 and "2 of 3" in verdict.reason
    assert POLICY.verdict(state(("fast", 0), ("second", 1), ("slow", 2))).winner == 2


def test_a_question_that_looks_hard_goes_straight_to_slow_where_that_is_worth_it():
    hard = Estimate(0.97, "test")
    prices = {"fast": 0.005, "second": 0.005, "slow": 0.01}
    assert asked(estimate=hard, prices=prices, value_usd=1.0) == "slow"


def test_prices_decide():
    dear = {"fast": 0.001, "second": 0.001, "slow": 10.0}
    assert asked(("fast", 0), ("second", 1), prices=dear) == "None"
    assert asked(prices=dear) in ("fast", "second")


@given(st.floats(0.001, 0.2), st.floats(1.01, 20))
def test_a_higher_value_never_asks_less(value, factor):
    """Whatever was worth its price is worth it at a higher value of a right answer."""
    for groups in ([("fast", 0)], [("fast", 0), ("second", 1)], [("fast", 0), ("second", 0)]):
        if asked(*groups, value_usd=value) != "None":
            assert asked(*groups, value_usd=value * factor) != "None"


@pytest.mark.parametrize(
    ("difficulty", "points", "agent"),
    [(0.18, 3, "fast"), (0.29, 10, "fast"), (0.6, 10, "slow"), (0.6, 25, "fast"), (0.9, 25, "slow")],
)
def test_an_easy_open_ended_request_goes_to_a_cheap_model(difficulty, points, agent):
    plan = {"one_call": True, "kind": "open-ended", "value_usd": 100 * 0.01 / points}
    assert asked(estimate=Estimate(difficulty, "test"), **plan) == agent


def test_a_reply_without_a_final_answer_has_nothing_to_compare():
    told = state(("fast", 0))
    prose = replace(told.candidates[0], text="word " * 50, stated=False)
    assert POLICY.next_stage(replace(told, candidates=(prose,))).stage is None
    for other in (replace(prose, finish="length"), replace(prose, text="word"), replace(prose, stated=True)):
        assert POLICY.next_stage(replace(told, candidates=(other,))).stage is not None


def test_open_ended_requests_take_one_call():
    first = POLICY.next_stage(state(one_call=True, kind="open-ended"))
    assert first.stage.calls == 1 and first.final
    assert POLICY.next_stage(state(("fast", 0), one_call=True)).stage is None
    assert asked(one_call=True, n=3).endswith("*3")


def test_nothing_is_likely_right_where_no_answer_is():
    """p is a probability of being right, and a poem is neither right nor wrong."""
    written = state(("fast", 0), one_call=True, kind="open-ended")
    assert POLICY.next_stage(written).p is None
    assert POLICY.verdict(written).reason == "the only answer"
    assert "likely right" in POLICY.verdict(state(("fast", 0), one_call=True, kind="number")).reason


def test_a_tool_loop_stays_with_its_agent_unless_it_fails():
    assert asked(loop_agent="slow", one_call=True) == "slow"
    assert asked(loop_agent="fast", one_call=True) == "fast"
    failed = replace(
        state(loop_agent="fast", one_call=True), stages=(POLICY.stages[0],), failed=frozenset({"fast"})
    )
    assert str(POLICY.next_stage(failed).stage) in ("second", "slow")


def test_what_does_not_fit_is_left_out():
    differ = state(("fast", 0), ("second", 1))
    assert POLICY.next_stage(replace(differ, calls_left=0)).stage is None
    assert POLICY.next_stage(replace(differ, failed=frozenset({"slow"}))).stage is None
    assert asked(("fast", 0), ("second", 1), max_path=Route.SIMPLE) == "None"
    without_slow = Assignment(models={"fast": "a", "second": "b"})
    assert asked(("fast", 0), ("second", 1), assignment=without_slow) == "None"


def test_only_the_first_and_last_call_streams():
    """After earlier answers, one of them may be chosen."""
    slow = CascadePolicy(default_stages(AGENTS)[2:3], AGENTS, Belief.load())
    assert slow.next_stage(state()).final
    one = CascadePolicy(default_stages(AGENTS)[:3], AGENTS, Belief.load())
    decision = one.next_stage(state(("fast", 0), ("second", 1)))
    assert str(decision.stage) == "slow" and not decision.final
    assert not POLICY.next_stage(state()).final


def test_a_question_is_asked_at_least_once():
    assert asked(value_usd=1e-9) != "None"


def test_one_slow_call_and_several_samples_in_one_request_are_alternatives():
    stages = tuple(map(Stage.parse, ("fast", "slow", "slow*5")))
    policy = CascadePolicy(stages, AGENTS, Belief.load(), {"slow": 5})
    cheap = {**PLAN.prices, "slow": 0.001}
    first = policy.next_stage(state(prices=cheap, sample_prices={"slow": 1e-5}, value_usd=1.0))
    assert str(first.stage) == "slow*5"  # straight to five samples, which share their prompt
    after_slow = replace(state(("slow", 0), prices=cheap, value_usd=1e9), stages=stages[1:2])
    assert policy.next_stage(after_slow).stage is None
    assert (1, 2) not in policy.simulation(0).p and (0, 2) in policy.simulation(0).p


def test_the_agent_is_chosen_by_kind_before_any_call():
    """Fast is as good as slow at yes/no and hopeless at numbers; other kinds use the skill on all questions."""
    fast = replace(AGENTS["fast"], by_kind=(("yes/no", 0.86), ("number", 0.05)))
    policy = CascadePolicy(tuple(map(Stage.parse, ("fast", "slow"))), {**AGENTS, "fast": fast}, Belief.load())
    prices = {"fast": 0.004, "slow": 0.01}
    assert str(policy.next_stage(state(kind="yes/no", prices=prices)).stage) == "fast"
    assert str(policy.next_stage(state(kind="number", prices=prices)).stage) == "slow"
    unseen = policy.next_stage(state(kind="choice", prices=prices))
    pooled = CascadePolicy(policy.stages, AGENTS, Belief.load()).next_stage(state(kind="choice", prices=prices))
    assert (unseen.stage, unseen.gain) == (pooled.stage, pooled.gain)


def test_tables_are_shared_by_similar_prices():
    before = len(POLICY._values)
    for i in range(50):
        POLICY.next_stage(state(("fast", 0), prices={**PLAN.prices, "slow": 0.01 * (1 + i / 5000)}))
    assert len(POLICY._values) <= before + 2


@pytest.mark.parametrize("agents", [("fast", "slow"), ("fast", "second", "slow"), ("fast", "slow", "huge")])
def test_default_stages_name_known_agents(agents):
    stages = default_stages(dict.fromkeys(agents, 1))
    assert set().union(*(stage.agents for stage in stages)) == set(agents)


def test_known_values_do_not_wait_for_a_thread_that_computes_others():
    plan = state().plan
    known = POLICY.values(plan)
    found = []
    reader = threading.Thread(target=lambda: found.append(POLICY.values(plan)), daemon=True)
    with POLICY._lock:
        reader.start()
        reader.join(20)
        assert found == [known]
