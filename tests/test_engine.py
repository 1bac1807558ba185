from __future__ import annotations

import asyncio
import dataclasses
import threading

import pytest

from odar.config import load_settings
from odar.difficulty.base import ConstantEstimator
from odar.engine import Odar
from odar.errors import AllAgentsFailed, BudgetExceeded, InputError, ProviderError, ProviderTimeout, UnknownName
from odar.options import AskKeywords, AskOptions
from odar.policy.cascade_values import StageValues
from odar.types import Image, Query, Route, Usage
from support.engine import MODELS, engine, steps, talk
from support.scripted import ScriptedProvider, completion
from support.waiting import until

DOWN = ProviderError("out of order", provider="p", status=503, retryable=True)


@pytest.mark.parametrize(
    ("difficulty", "path", "fast_steps", "slow_steps", "calls"),
    [
        (0.1, Route.SIMPLE, ["answer"], [], 1),
        (0.3, Route.MEDIUM, ["answer"], ["verify"], 2),
        (0.7, Route.HARD, ["answer"], ["solve"], 6),
    ],
)
async def test_difficulty_chooses_the_path(difficulty, path, fast_steps, slow_steps, calls):
    odar, fast, slow = engine(difficulty=difficulty)
    answer = await odar.aask("What is 2 + 2?")
    assert (answer.final, answer.path, answer.degraded) == ("4", path, False)
    assert (steps(fast), steps(slow)) == (fast_steps, slow_steps)
    assert answer.trace.spend.calls == calls
    assert len(answer.trace.candidates) == calls


async def test_the_caller_can_choose_the_path():
    odar, _, slow = engine(difficulty=0.1)
    answer = await odar.aask("What is 2 + 2?", path="hard")
    assert answer.path is Route.HARD
    assert slow.requests[0].n == 5
    with pytest.raises(InputError, match="path 'harder' is not one of: simple, medium, hard"):
        await odar.aask("What?", path="harder")


async def test_the_verifier_gets_the_whole_fast_output_and_the_solver_does_not():
    odar, _, slow = engine()
    await odar.aask("What is 2 + 2?", path="medium")
    assert "Proposed answer:\nAnswer: 4" in slow.requests[0].messages[-1].text
    await odar.aask("What is 2 + 2?", path="hard")
    assert "4" not in slow.requests[1].messages[-1].text


async def test_the_hard_path_calls_both_agents_at_once():
    odar, fast, slow = engine()
    slow.meet = fast.meet = asyncio.Barrier(2)  # each waits for the other's request
    assert (await odar.aask("What is 2 + 2?", path="hard")).final == "4"


async def test_a_server_without_n_gets_separate_concurrent_calls_with_their_own_seeds():
    models = {**MODELS, "deep": {**MODELS["deep"], "n": False}}
    odar, _, slow = engine(models=models)
    slow.delay_s = 0.05
    answer = await odar.aask("What is 2 + 2?", path="hard", seed=7)
    assert [request.n for request in slow.requests] == [1] * 5
    assert sorted(request.sampling.seed for request in slow.requests) == [7, 8, 9, 10, 11]
    assert slow.most_in_flight == 5
    assert answer.trace.spend.calls == 6


async def test_a_server_that_ignores_n_gets_further_requests():
    odar, _, slow = engine(slow=lambda request, index: [completion(f"Answer: {index}")])
    answer = await odar.aask("What is 2 + 2?", path="hard")
    assert [request.n for request in slow.requests] == [5, 1, 1, 1, 1]
    assert len(answer.trace.candidates) == 6
    assert answer.trace.spend.calls == 6


async def test_if_both_agents_are_down_the_error_names_both():
    odar, _, _ = engine(fast=lambda r, i: DOWN, slow=lambda r, i: ProviderError("no such model", status=404))
    with pytest.raises(AllAgentsFailed) as caught:
        await odar.aask("What is 2 + 2?", path="medium")
    assert "fast agent: out of order" in str(caught.value)
    assert "slow agent: no such model" in str(caught.value)
    assert caught.value.status == 503


async def test_an_error_has_the_calls_and_cost_so_far():
    odar, _, _ = engine(fast=lambda r, i: DOWN, slow=lambda r, i: DOWN)
    with pytest.raises(AllAgentsFailed) as caught:
        await odar.aask("What is 2 + 2?", path="medium")
    assert str(caught.value).count("out of order") == 1 and "fast and slow agent" in str(caught.value)
    assert (caught.value.spend.calls, caught.value.spend.cost_usd) == (2, None)


async def test_invalid_rules_and_images_are_rejected_before_any_call():
    with pytest.raises(UnknownName, match="unknown fusion rule 'majorty'"):
        engine(fusion__rule="majorty")
    odar, fast, slow = engine()
    for path in ("simple", "medium", "hard"):
        with pytest.raises(InputError, match="cannot see images"):
            await odar.aask("What is this?", images=[Image("image/png", b"x")], path=path)
    assert fast.requests == slow.requests == []


@pytest.mark.parametrize("path", ["medium", "hard"])
async def test_an_image_is_sent_only_to_the_agent_that_accepts_images(path):
    models = {**MODELS, "quick": {**MODELS["quick"], "images": True}}
    odar, fast, slow = engine(models=models)
    answer = await odar.aask("What is this?", images=[Image("image/png", b"x")], path=path)
    assert fast.requests
    assert slow.requests == []
    assert any("cannot see images" in each for each in answer.trace.degradations)


async def test_an_exception_in_one_agent_cancels_the_other():
    def broken(request, index):
        raise RuntimeError("a bug in a provider")

    odar, _, slow = engine(fast=broken)
    slow.delay_s = 30
    with pytest.raises(RuntimeError):
        await odar.aask("What is 2 + 2?", path="hard")
    assert slow.in_flight == 0


@pytest.mark.parametrize("limit", [float("nan"), -1.0, "3"])
async def test_an_invalid_limit_is_rejected(limit):
    odar, _, _ = engine()
    with pytest.raises(InputError, match="is not a limit"):
        await odar.aask("What is 2 + 2?", max_cost_usd=limit)
    assert (await odar.aask("What is 2 + 2?", max_cost_usd=float("inf"))).final == "4"


async def test_failed_samples_degrade_the_answer():
    models = {**MODELS, "deep": {**MODELS["deep"], "n": False}}
    odar, _, _ = engine(
        models=models, slow=lambda request, index: DOWN if index % 2 else [completion(f"Answer: {index}")]
    )
    answer = await odar.aask("What is 2 + 2?", path="hard")
    assert len(answer.trace.candidates) == 4
    assert answer.degraded
    assert [call.error is None for call in answer.trace.calls].count(False) == 2


async def test_an_empty_answer_is_a_failure_that_names_max_tokens():
    odar, _, _ = engine(fast=lambda request, index: [completion(" ", finish="length")])
    answer = await odar.aask("What is 2 + 2?", path="simple")
    assert any("raise fast.max_tokens" in reason for reason in answer.trace.degradations)


async def test_a_verifier_without_an_answer_returns_the_proposal():
    odar, _, _ = engine(slow=lambda request, index: [completion("It holds.\nJudgment: CORRECT", -0.01)])
    answer = await odar.aask("What is 2 + 2?", path="medium")
    verifier = answer.trace.candidates[1]
    assert (verifier.judgment, verifier.answer) == (True, "4")
    assert verifier.text == "It holds.\nJudgment: CORRECT"


async def test_max_calls_is_not_exceeded():
    for limit in range(1, 8):
        odar, fast, slow = engine()
        answer = await odar.aask("What is 2 + 2?", path="hard", max_calls=limit)
        assert sum(request.n for request in fast.requests + slow.requests) == min(limit, 6)
        assert answer.degraded == (limit < 6)


async def test_max_cost_is_not_exceeded():
    odar, _, _ = engine()
    free = await odar.aask("What is 2 + 2?", path="hard", max_cost_usd=1.0)
    assert not free.degraded
    assert free.trace.spend.cost_usd <= 1.0
    with pytest.raises(BudgetExceeded, match=r"one call to quick can cost"):
        await odar.aask("What is 2 + 2?", path="hard", max_cost_usd=0.0000001)


async def test_a_request_cannot_loosen_the_configured_limits():
    odar, fast, slow = engine(limits__max_calls=2)
    await odar.aask("What is 2 + 2?", path="hard", max_calls=100)
    assert sum(request.n for request in fast.requests + slow.requests) == 2


async def test_answers_finished_by_the_deadline_are_used():
    odar, _, slow = engine()
    slow.delay_s = 30
    answer = await odar.aask("What is 2 + 2?", path="hard", deadline_s=0.2)
    assert answer.final == "4"
    assert answer.degraded
    assert slow.in_flight == 0


async def test_no_answer_by_the_deadline_is_a_timeout():
    odar, fast, slow = engine()
    fast.delay_s = slow.delay_s = 30
    with pytest.raises(AllAgentsFailed) as caught:
        await odar.aask("What is 2 + 2?", path="hard", deadline_s=0.1)
    assert any(isinstance(cause, ProviderTimeout) for cause in caught.value.causes)


async def test_agents_have_their_own_timeouts():
    odar, fast, slow = engine(fast__timeout_s=5, slow__timeout_s=9)
    await odar.aask("What is 2 + 2?", path="hard")
    assert (fast.requests[0].timeout_s, slow.requests[0].timeout_s) == (5, 9)


async def test_cancelling_the_question_cancels_the_calls():
    odar, fast, slow = engine()
    fast.delay_s = slow.delay_s = 30
    task = asyncio.create_task(odar.aask("What is 2 + 2?", path="hard"))
    await until(lambda: fast.in_flight and slow.in_flight)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (fast.in_flight, slow.in_flight) == (0, 0)


async def test_the_ledger_sums_usage_and_cost():
    odar, _, _ = engine()
    answer = await odar.aask("What is 2 + 2?", path="medium")
    assert answer.trace.spend.usage == Usage(20, 0, 10, 0)
    expected = (10 * 1 + 5 * 4 + 10 * 3 + 5 * 15) / 1e6
    assert answer.trace.spend.cost_usd == pytest.approx(expected)
    assert [call.model for call in answer.trace.calls] == ["quick", "deep"]


async def test_an_unknown_price_is_unknown_not_zero():
    models = {**MODELS, "deep": {"provider": "slow", "logprobs": True, "n": True}}
    odar, _, _ = engine(models=models)
    assert (await odar.aask("What is 2 + 2?", path="medium")).trace.spend.cost_usd is None
    assert (await odar.aask("What is 2 + 2?", path="simple")).trace.spend.cost_usd is not None


async def test_a_failed_call_costs_nothing_or_an_unknown_amount():
    for may_be_billed, cost in ((False, 0.0), (True, None)):
        failure = ProviderError("down", status=503, may_be_billed=may_be_billed)
        odar, _, _ = engine(slow=lambda request, index, failure=failure: failure)
        answer = await odar.aask("What is 2 + 2?", path="medium")
        assert answer.trace.calls[1].cost_usd == cost


@pytest.mark.parametrize("path", [None, *Route])
@pytest.mark.parametrize("policy", ["paper", "cascade", "slow*2"])
async def test_on_text_receives_the_text_of_the_answer_on_every_path(path, policy):
    odar, _, _ = engine(policy=policy)
    pieces: list[str] = []
    answer = await odar.aask("What is 2 + 2?", path=path, on_text=pieces.append)
    assert "".join(pieces) == answer.text == str(answer)
    assert answer.final == "4"


async def test_the_trace_names_prompts_path_and_rule():
    odar, _, _ = engine(difficulty=0.9)
    answer = await odar.aask("What is 2 + 2?")
    trace = answer.trace
    assert dict(trace.prompts).keys() == {"answer", "verify", "solve"}
    assert all(len(md5) == 32 for _, md5 in trace.prompts)
    assert trace.decisions[0].reason == "d = 0.900 ≥ τ2 = 0.7"
    assert trace.verdict.rule == "fep (uncalibrated)"
    assert "quick" in trace.verdict.reason


async def test_without_logprobs_another_rule_is_used():
    def silent(request, index):
        return [dataclasses.replace(c, tokens=()) for c in talk(request, index)]

    models = {**MODELS, "deep": {**MODELS["deep"], "logprobs": False}}
    odar, _, slow = engine(models=models, slow=silent)
    answer = await odar.aask("What is 2 + 2?", path="medium")
    assert answer.trace.verdict.rule == "judgment"
    assert slow.requests[0].logprobs is False
    assert (await odar.aask("What is 2 + 2?", path="hard")).trace.verdict.rule == "agreement"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the question is empty"),
        (" \n\t", "the question is empty"),
        ("a\0b", "NUL character at position 1"),
        ("a\ud800b", "unpaired surrogate"),
        (5, "must be a string or a list of messages, not int"),
    ],
)
async def test_invalid_questions_are_rejected(text, message):
    odar, _, _ = engine()
    with pytest.raises(InputError, match=message):
        await odar.aask(text)


async def test_a_question_beyond_the_context_is_rejected_before_any_call():
    models = {**MODELS, "quick": {**MODELS["quick"], "context": 1000}}
    odar, fast, _ = engine(models=models)
    with pytest.raises(InputError, match=r"1,000,000 characters cannot fit the context of quick, 1,000 tokens"):
        await odar.aask("x" * 1_000_000)
    assert fast.requests == []


async def test_an_image_needs_a_model_that_accepts_images():
    odar, _, _ = engine()
    with pytest.raises(InputError, match="quick cannot see images"):
        await odar.aask(Query("What is this?", (Image("image/png", b"x"),)))
    models = {name: {**model, "images": True} for name, model in MODELS.items()}
    odar, fast, _ = engine(models=models)
    await odar.aask("What is this?", images=[Image("image/png", b"x")], path="simple")
    assert fast.requests[0].messages[-1].images == (Image("image/png", b"x"),)


async def test_an_alternative_model_is_used_for_images_or_a_higher_score():
    models = {
        "quick": {**MODELS["quick"], "scores": {"math": 0.5}},
        "deep": {**MODELS["deep"], "images": True},
        "sharp": {**MODELS["quick"], "scores": {"math": 0.8}},
        "seer": {**MODELS["quick"], "images": True},
    }
    odar, fast, _ = engine(models=models, fast__alternatives=["sharp", "seer"])
    answer = await odar.aask("Solve the equation x = 2 + 2.", path="medium")
    assert (answer.trace.plan.assignment.expert, fast.requests[-1].model) == ("math", "sharp")
    assert [call.model for call in answer.trace.calls] == ["sharp", "deep"]
    await odar.aask("What is this?", images=[Image("image/png", b"x")], path="simple")
    assert fast.requests[-1].model == "seer"


async def test_the_ablation_without_dispatch_asks_the_default_models():
    models = {
        "quick": {**MODELS["quick"], "scores": {"math": 0.5}},
        "deep": MODELS["deep"],
        "sharp": {**MODELS["quick"], "scores": {"math": 0.8}},
    }
    odar, fast, slow = engine(models=models, fast__alternatives=["sharp"])
    async with Odar(odar.settings.with_default_models(), providers={"fast": fast, "slow": slow}) as without:
        await without.aask("Solve the equation x = 2 + 2.", path="simple")
    assert fast.requests[-1].model == "quick"


def test_the_synchronous_wrapper_works_with_and_without_a_running_loop():
    odar, fast, _ = engine()
    with odar:
        assert odar.ask("What is 2 + 2?", path="simple").final == "4"

        async def inside():
            return odar.ask("What is 2 + 2?", path="simple")

        assert asyncio.run(inside()).final == "4"
    assert fast.closed


async def test_closing_closes_the_providers():
    odar, fast, slow = engine()
    async with odar:
        pass
    assert fast.closed
    assert slow.closed


async def test_the_ledger_records_when_each_call_began():
    odar, fast, _ = engine(difficulty=0.5)
    fast.delay_s = 0.05
    answer, verify = (await odar.aask("2 + 2?", path="medium")).trace.calls
    assert 0 <= answer.began_s < answer.began_s + answer.seconds <= verify.began_s  # one after the other
    odar, fast, slow = engine(difficulty=0.9)
    fast.meet = slow.meet = asyncio.Barrier(2)  # each waits for the other's request
    calls = (await odar.aask("2 + 2?")).trace.calls
    assert max(call.began_s for call in calls) < min(call.began_s + call.seconds for call in calls)  # concurrent


def test_the_keywords_are_options():
    names = {field.name for field in dataclasses.fields(AskOptions)}
    assert set(AskKeywords.__annotations__) <= names


async def test_values_of_a_cascade_are_not_computed_in_the_event_loop(monkeypatch):
    """New prices or dials take tens of milliseconds, and clients can choose both."""
    threads = []
    by_induction = StageValues.by_induction

    def noting(*arguments):
        threads.append(threading.current_thread() is threading.main_thread())
        return by_induction(*arguments)

    monkeypatch.setattr(StageValues, "by_induction", noting)
    odar, _, _ = engine(policy="cascade")
    for dial in ("economy", 7, "quality"):
        await odar.aask("What is 2 + 2?", dial=dial)
    assert len(threads) == 3 and not any(threads)
    await odar.aask("What is 2 + 2?", dial=7)
    assert len(threads) == 3, "they are kept"


async def test_a_price_of_zero_counts_as_unknown():
    free = {name: {**model, "price": {"input": 0, "cached": 0.1, "output": 0}} for name, model in MODELS.items()}
    odar, _, _ = engine(policy="cascade", models=free)
    assert (await odar.aask("What is 2 + 2?")).final == "4"
    assert odar.planner.reference_usd > 0


def test_a_further_agent_is_as_skilled_as_its_price_suggests():
    """Without a score or a calibration; three agents have their roles."""
    models = {
        **MODELS,
        "cheap": {**MODELS["quick"]},
        "dear": {**MODELS["deep"], "price": {"input": 10, "output": 60}},
    }
    agents = {"cheap": {"model": "cheap"}, "dear": {"model": "dear"}}
    odar, _, _ = engine(policy="cascade", models=models, agents=agents)
    skills = {name: agent.skill for name, agent in odar.rated_agents.items()}
    assert skills["cheap"] == skills["fast"] and skills["dear"] == skills["slow"]


@pytest.mark.parametrize(
    ("question", "options", "policy", "asked"),
    [
        ("What is 2 + 2?", {}, "slow", "slow"),
        ("Write a haiku about rain.", {}, "cascade", "fast"),
        ("Write a haiku about rain.", {"policy": "slow"}, "slow", "slow"),
    ],
)
async def test_a_choice_that_a_calibration_installed_is_not_for_open_ended_requests(
    question, options, policy, asked
):
    """It was measured with exact questions. What the user writes into the settings holds for every request."""
    settings = load_settings("local", environ={}, **options)
    providers = {"local": ScriptedProvider(talk, "local")}
    async with Odar(settings, providers=providers, estimator=ConstantEstimator(0.2)) as odar:
        trace = (await odar.aask(question)).trace
        assert (trace.plan.policy, [call.agent for call in trace.calls]) == (policy, [asked])
        exact = (await odar.aask("What is 2 + 2?", dial="quality")).trace
        assert exact.plan.policy == ("slow" if options else "cascade")


async def test_one_model_at_two_efforts_is_fast_and_slow():
    both = {"fast__model": "quick@none", "slow__model": "quick@high"}
    odar, provider, _ = engine(difficulty=0.3, **both)
    answer = await odar.aask("What is 2 + 2?", path="medium")
    assert [(request.model, request.effort) for request in provider.requests] == [
        ("quick", "none"),
        ("quick", "high"),
    ]
    assert [call.model for call in answer.trace.calls] == ["quick@none", "quick@high"]
    fast, slow = (request.sampling.max_tokens for request in provider.requests)
    assert slow >= fast + 4 * 6000  # reasoning counts towards the limit
    limits = {source.model: source.max_tokens for source in odar.agents.sources().values()}
    assert limits == {"quick@none": fast, "quick@high": slow}  # else a calibration would not know these requests
    assert answer.trace.plan.prices["slow"] > 10 * answer.trace.plan.prices["fast"]


ALONE = {"prompts": "default", "policy": "cascade"}
EXPENSIVE = {**MODELS, "deep": {**MODELS["deep"], "price": {"input": 10, "output": 40}}}


@pytest.mark.parametrize("overrides", [{**ALONE, "models": EXPENSIVE}, {**ALONE, "policy": "slow"}])
async def test_where_one_call_decides_the_prompt_is_the_users_own(overrides):
    """Nothing is compared, so no form is asked for; the reply streams, and no other call follows it."""
    reply = "It is *four*, which nobody doubts."
    odar, fast, slow = engine(slow=lambda request, index: [completion(reply)], **overrides)
    pieces: list[str] = []
    answer = await odar.aask("What is 2 + 2?", on_text=pieces.append)
    (request,) = slow.requests
    assert [(turn.role, turn.text) for turn in request.messages] == [("user", "What is 2 + 2?")]
    assert (answer.text, answer.final, "".join(pieces), fast.requests) == (reply, reply, reply, [])
    assert answer.trace.decisions[0].final
    step = await odar.adecide("What is 2 + 2?", [{"agent": "slow", "text": reply}])
    assert (step.stage, step.candidates[0].stated) == (None, True)


async def test_who_needs_a_short_answer_keeps_the_instruction():
    odar, _, slow = engine(
        slow=lambda request, index: [completion("Four.\nAnswer: 4")], policy="slow", prompts="default"
    )
    assert (await odar.aask("What is 2 + 2?", short=True)).final == "4"
    assert "Answer: <response>" in slow.requests[0].messages[0].text
    (body,) = (await odar.adecide("What is 2 + 2?", short=True)).requests.values()
    assert body["messages"][0]["role"] == "system"


async def test_an_answer_that_others_may_follow_is_asked_for_in_a_form_that_can_be_compared():
    odar, fast, _ = engine(**ALONE, models=EXPENSIVE, second__model="deep")
    answer = await odar.aask("What is 2 + 2?", dial="quality")
    asked = [decision for decision in answer.trace.decisions if decision.stage is not None]
    assert not any(decision.final for decision in asked)
    assert all("Answer: <response>" in request.messages[0].text for request in fast.requests)


async def test_a_call_that_decides_alone_and_fails_is_replaced():
    odar, _, _ = engine(slow=lambda request, index: DOWN, **ALONE, models=EXPENSIVE)
    answer = await odar.aask("What is 2 + 2?")
    assert (answer.final, answer.degraded, [call.agent for call in answer.trace.calls]) == (
        "4",
        True,
        ["slow", "fast"],
    )


@pytest.mark.parametrize(
    ("logprobs", "cheap", "skill"), [(True, "quick", 0.62), (False, "quick", 0.45), (True, "", 0.45)]
)
def test_a_vendors_cheap_model_with_logprobs_is_more_skilled_than_any_cheap_model(logprobs, cheap, skill):
    providers = {"fast": {"kind": "openai", "cheap": cheap}, "slow": {"kind": "openai"}}
    models = {**MODELS, "quick": {**MODELS["quick"], "logprobs": logprobs}}
    odar, _, _ = engine(policy="cascade", providers=providers, models=models)
    assert odar.rated_agents["fast"].skill == skill
