"""Decisions without calls. That they are the engine's is tested in tests/lab/replay/test_engine_agrees.py."""

from __future__ import annotations

import pytest

import odar
from odar.errors import InputError
from odar.policy.base import stage_price
from odar.types import Image, Stage
from support.engine import MODELS, engine

QUESTION = "What is 17 * 23 + 4?"
THREE = {
    "models": {**MODELS, "other": {**MODELS["quick"], "family": "other"}},
    "second__model": "other",
    "policy": "cascade",
}


def agent_says(agent, answer, **more):
    return {"agent": agent, "text": f"Answer: {answer}", **more}


@pytest.fixture
def trio():
    models = {**THREE["models"], "deep": {**MODELS["deep"], "price": {"input": 30, "output": 120}}}
    made, *providers = engine(difficulty=0.2, **{**THREE, "models": models})
    yield made
    assert not any(provider.requests for provider in providers), "a decision makes no call"


def test_the_first_decision_names_agent_model_difficulty_kind_and_prices(trio):
    step = trio.decide(QUESTION)
    assert (str(step.stage), step.verdict, step.answer) == ("fast", None, None)
    told = step.to_dict()
    (asked,) = told["ask"]
    assert (asked["agent"], asked["model"], asked["samples"]) == ("fast", "quick", 1)
    assert asked["request"]["messages"][-1]["content"].endswith(QUESTION)
    assert (told["action"], told["difficulty"], told["kind"], told["dial"]) == ("ask", 0.2, "number", "balanced")
    assert told["thresholds"][0].startswith("start with ")
    assert told["thresholds"][1].startswith("after fast: ")
    assert 0 < told["cost_usd"]["next"] < told["cost_usd"]["expected"] < told["cost_usd"]["slow"]


def test_agreement_stops_with_the_answer_and_p(trio):
    step = trio.decide(QUESTION, [agent_says("fast", 395), agent_says("second", 395)])
    told = step.to_dict()
    assert (told["action"], told["stage"], told["ask"]) == ("stop", None, [])
    assert told["answer"] == {"index": 0, "agent": "fast", "text": "Answer: 395", "final": "395"}
    assert told["p"] > 0.8
    assert (told["cost_usd"]["next"], told["cost_usd"]["expected"]) == (0.0, 0.0)


def test_disagreement_asks_the_slow_agent_and_its_answer_decides(trio):
    answers = [agent_says("fast", 381), agent_says("second", 395)]
    step = trio.decide(QUESTION, answers)
    assert str(step.stage) == "slow"
    step = trio.decide(QUESTION, [*answers, agent_says("slow", 395)])
    assert (step.stage, step.answer) == (None, 2)


def test_the_number_of_the_answer_is_the_callers(trio):
    """The failed answer of second counts as a call, but not as a candidate."""
    step = trio.decide(QUESTION, [{"agent": "second"}, agent_says("slow", 395)], dial="economy")
    assert (step.stage, step.answer, len(step.candidates)) == (None, 1, 1)


def test_an_agent_that_failed_is_not_asked_again(trio):
    failed = trio.decide(QUESTION, [{"agent": "fast", "text": " "}])
    assert str(failed.stage) in ("second", "slow")
    none_left = trio.decide(QUESTION, [{"agent": agent} for agent in ("fast", "second", "slow")])
    assert (none_left.stage, none_left.answer, none_left.to_dict()["answer"]) == (None, None, None)


def test_limits_hold_for_all_calls_together(trio):
    differ = [agent_says("fast", 381), agent_says("second", 395)]
    assert trio.decide(QUESTION, differ, max_calls=3).stage == Stage.parse("slow")
    stopped = trio.decide(QUESTION, differ, max_calls=2)
    assert (stopped.stage, stopped.decision.reason) == (None, "no further stage fits the limits")
    slow_usd = trio.decide(QUESTION, max_cost_usd=1).plan.worst_usd["slow"]
    paid = [answer | {"cost_usd": 0.001} for answer in differ]
    assert trio.decide(QUESTION, paid, max_cost_usd=slow_usd + 0.002).stage == Stage.parse("slow")
    assert trio.decide(QUESTION, paid, max_cost_usd=slow_usd + 0.0019).stage is None
    unknown = trio.decide(QUESTION, differ, max_cost_usd=slow_usd + 0.0001)
    assert unknown.stage is None, "a call of unknown cost counts with the most that it can cost"


def test_expected_cost_leaves_out_what_the_limits_forbid(trio):
    one = trio.decide(QUESTION, max_calls=1)
    assert one.expected_usd == one.next_usd


def test_answers_that_were_not_asked_for_count_too(trio):
    step = trio.decide(QUESTION, [agent_says("slow", 395), agent_says("slow", 395), agent_says("fast", 395)])
    assert (step.stage, step.answer) == (None, 0)


def test_log_probabilities_change_p(trio):
    tokens = [{"token": "Answer:"}, {"token": " 395", "logprob": -0.01, "bytes": [32, 51, 57, 53]}]
    sure = trio.decide(QUESTION, [agent_says("fast", 395, logprobs=tokens)])
    tokens = [{"token": "Answer:"}, {"token": " 395", "logprob": -3.0, "top_logprobs": []}]
    unsure = trio.decide(QUESTION, [agent_says("fast", 395, logprobs=tokens)])
    assert sure.decision.p > unsure.decision.p


def test_the_paper_and_fixed_choices(trio):
    made, *_ = engine(difficulty=0.4)
    step = made.decide(QUESTION)
    assert step.thresholds == ("simple if d < 0.3, medium if d < 0.7, else hard",)
    assert step.expected_usd == pytest.approx(
        sum(stage_price(Stage.parse(each), step.plan) for each in ("fast", "slow"))
    )
    proposal = made.decide(QUESTION, [agent_says("fast", 4)])
    (body,) = proposal.requests.values()
    assert (str(proposal.stage), "Answer: 4" in body["messages"][-1]["content"]) == ("slow:verify", True)
    done = made.decide(QUESTION, [agent_says("fast", 4), {"agent": "slow", "text": "Judgment: CORRECT"}])
    assert (done.stage, done.candidates[1].answer) == (None, "4")
    assert made.decide(QUESTION, path="hard").thresholds == ()
    fixed, *_ = engine(policy="slow*3")
    assert fixed.decide(QUESTION).expected_usd == pytest.approx(fixed.decide(QUESTION).next_usd)
    assert str(fixed.decide(QUESTION).stage) == "slow*3"


def test_given_answers_are_not_counted_as_served(trio):
    before = trio.alignment.report(trio.agents.prompt_steps())
    trio.decide(QUESTION, [agent_says("fast", 395)])
    assert trio.alignment.report(trio.agents.prompt_steps()) == before


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([{"agent": "fats", "text": "4"}], r"answers\[0\].agent: 'fats' is not one of: fast, second, slow"),
        ([{"text": "4"}], "answers: .*missing required field `agent`"),
        ([{"agent": "fast", "txt": "4"}], "answers: .*unknown field `txt`"),
        ([{"agent": "fast", "text": "4", "cost_usd": -1}], "answers: .*>= 0"),
        ([{"agent": "fast"}] * 33, "answers: .*<= 32"),
    ],
)
def test_bad_answers_are_named(trio, answers, message):
    with pytest.raises(InputError, match=message):
        trio.decide(QUESTION, answers)


def test_images_that_no_agent_can_see_are_rejected(trio):
    with pytest.raises(InputError, match="cannot see images"):
        trio.decide(QUESTION, images=[Image("image/png", b"x")])


def test_no_key_is_needed(monkeypatch, tmp_path):
    """`odar.decide` has the default engine, whose providers are never opened."""
    monkeypatch.chdir(tmp_path)
    settings = odar.load_settings("custom", environ={}, fast__model="gpt-4.1-nano", slow__model="gpt-4.1")
    monkeypatch.setattr("odar.api._default_engine", lambda: odar.Odar(settings))
    assert odar.decide(QUESTION).plan.models == {"fast": "gpt-4.1-nano", "slow": "gpt-4.1"}
