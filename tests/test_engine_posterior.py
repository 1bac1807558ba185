"""Routing after the fast answer (SPEC 5.11)."""

from __future__ import annotations

import asyncio
import dataclasses

import numpy as np
import pytest

from odar.config import load_settings
from odar.difficulty.base import ConstantEstimator
from odar.engine import Odar, ServingOptions
from odar.errors import ProviderError, SettingsError
from odar.policy.alignment import Statistics
from odar.policy.signals import AnswerKind, QuantileTables
from odar.types import Path, Step
from support.scripted import ScriptedProvider, completion, step_of

MODELS = {
    "quick": {"provider": "fast", "logprobs": True, "n": True, "price": {"input": 1, "output": 4}},
    "deep": {"provider": "slow", "logprobs": True, "n": True, "price": {"input": 3, "output": 15}},
}
SURE, UNSURE = -0.01, -3.0
"""Log-probs of the fast answer's tokens, far above and far below the usual ones of its model."""


def talker(fast_logprob):
    def talk(request, index):
        match step_of(request):
            case "answer":
                return [completion("Answer: 4", fast_logprob)]
            case "verify":
                return [completion("Judgment: CORRECT\nAnswer: 4", -0.2)]
            case _:
                return [completion(f"Sample {i}.\nAnswer: 5", -0.3) for i in range(request.n)]

    return talk


USUAL = QuantileTables.fit(
    {
        (kind.value, name): np.linspace(low, high, 60)
        for kind in AnswerKind
        for name, low, high in (
            ("answer_logprob", -1.0, 0.0), ("mean_logprob", -1.0, 0.0), ("length", 5.0, 400.0), ("prior", 0.0, 1.0)
        )
    }
)  # fmt: skip


def engine(prior, fast_logprob, *, calibrated=True, slow=None, **overrides):
    """An engine whose fast model usually has F = 0.3 ± 0.1 and answers with probabilities between 1/e and 1."""
    settings = load_settings(
        "tiny",
        environ={},
        models=MODELS,
        providers={"fast": {"kind": "openai"}, "slow": {"kind": "openai"}},
        prompts="default",
        fusion__stop_confidence=None,
        fast__model="quick",
        slow__model="deep",
        calibration="",
        **overrides,
    )
    talk = talker(fast_logprob)
    providers = {"fast": ScriptedProvider(talk, "fast"), "slow": ScriptedProvider(slow or talk, "slow")}
    odar = Odar(settings, providers=providers, estimator=ConstantEstimator(prior))
    if calibrated:
        known = Statistics(0.3, 0.1, 50, quantiles=USUAL.to_dict())
        odar.alignment.calibrated = {odar.source("quick", Step.ANSWER): known}
    return odar, providers["fast"], providers["slow"]


def steps(*providers):
    return [step_of(request) for provider in providers for request in provider.requests]


async def test_a_confident_fast_answer_needs_no_verification():
    odar, fast, slow = engine(0.45, SURE)
    answer = await odar.aask("What is 2 + 2?")
    decision = answer.trace.decision
    assert (answer.path, steps(fast, slow), answer.trace.spend.calls) == (Path.SIMPLE, ["answer"], 1)
    assert decision.posterior is not None
    assert decision.posterior < 0.3 < decision.estimate.difficulty == 0.45
    assert decision.difficulty == decision.posterior
    assert "prior 0.450, medium" in decision.reason


async def test_an_uncertain_fast_answer_is_checked_by_the_slow_agent():
    odar, fast, slow = engine(0.2, UNSURE)
    answer = await odar.aask("What is 2 + 2?")
    assert answer.path in (Path.MEDIUM, Path.HARD)
    assert steps(fast) == ["answer"], "the fast call is not repeated"
    assert steps(slow)
    assert "prior 0.200, simple" in answer.trace.decision.reason


async def test_the_hard_path_reuses_the_fast_answer_as_a_candidate():
    odar, fast, slow = engine(0.8, UNSURE)
    answer = await odar.aask("What is 2 + 2?")
    assert answer.path is Path.HARD
    assert (steps(fast), steps(slow)) == (["answer"], ["solve"])
    assert [c.step for c in answer.trace.candidates] == [Step.ANSWER] + [Step.SOLVE] * 5
    assert slow.requests[0].n == 5


async def test_a_clearly_hard_question_does_not_wait_for_the_fast_answer():
    odar, fast, slow = engine(0.9, SURE)
    fast.meet = slow.meet = asyncio.Barrier(2)  # each waits for the other's request
    answer = await odar.aask("Prove it.")
    assert answer.path is Path.HARD
    assert answer.trace.decision.posterior is None


@pytest.mark.parametrize(("logprob", "path"), [(SURE, Path.SIMPLE), (UNSURE, Path.HARD)])
async def test_an_uncalibrated_model_uses_the_shipped_quantiles(logprob, path):
    odar, _, _ = engine(0.45, logprob, calibrated=False)
    answer = await odar.aask("What is 2 + 2?")
    assert (answer.path, answer.trace.decision.look.quantiles) == (path, "shipped")


async def test_after_thirty_answers_the_models_own_quantiles_are_used():
    odar, fast, _ = engine(0.45, SURE, calibrated=False)
    logprobs = iter(np.linspace(-8, -4, 40))
    fast.script = lambda request, index: [completion("Answer: 4", float(next(logprobs)))]
    for _ in range(31):
        await odar.aask("What is 2 + 2?")
    odar.alignment.sync()
    fast.script = lambda request, index: [completion("Answer: 4", -4.5)]
    look = (await odar.aask("What is 2 + 2?")).trace.decision.look
    assert look.quantiles == "served"
    assert {name: rank for name, _, rank in look.signals}["answer_logprob"] > 0.8  # sure, for this model


async def test_a_direct_answer_without_log_probs_is_routed_by_the_prior():
    odar, fast, slow = engine(0.45, SURE)
    fast.script = lambda request, index: [dataclasses.replace(completion("Answer: 4", SURE), tokens=())]
    answer = await odar.aask("What is 2 + 2?")
    assert (answer.path, answer.trace.decision.posterior, steps(slow)) == (Path.MEDIUM, None, ["verify"])


@pytest.mark.parametrize(("second", "path"), [("4", Path.SIMPLE), ("7", Path.HARD)])
async def test_a_second_opinion_is_compared_and_does_not_vote(second, path):
    odar, fast, _ = engine(0.45, -0.45, routing__second_opinion=True)
    fast.script = lambda request, index: [completion(f"Answer: {a}", -0.45) for a in ("4", second)[: request.n]]
    answer = await odar.aask("What is 2 + 2?")
    assert fast.requests[0].n == 2
    assert answer.path is path
    assert [c.answer for c in answer.trace.candidates if c.step is Step.ANSWER] == ["4"]
    signals = {name: value for name, value, _ in answer.trace.decision.look.signals}
    assert signals["agreement"] == float(second == "4")


async def test_a_chosen_path_requests_no_second_opinion():
    odar, fast, _ = engine(0.45, SURE, routing__second_opinion=True)
    await odar.aask("What is 2 + 2?", path="medium")
    assert fast.requests[0].n == 1


@pytest.mark.parametrize("how", [{"routing__mode": "prior"}, {"dispatch__strategy": False}])
async def test_the_prior_decides_if_the_posterior_is_disabled(how):
    odar, _, slow = engine(0.45, SURE, **how)
    answer = await odar.aask("What is 2 + 2?")
    assert (answer.path, answer.trace.decision.posterior) == (Path.MEDIUM, None)
    assert steps(slow) == ["verify"]


async def test_a_path_chosen_by_the_caller_is_taken():
    odar, _, slow = engine(0.45, SURE)
    answer = await odar.aask("What is 2 + 2?", path="medium")
    assert (answer.path, answer.trace.decision.posterior, steps(slow)) == (Path.MEDIUM, None, ["verify"])


async def test_quantiles_of_other_sampling_settings_are_not_used():
    odar, _, _ = engine(0.45, SURE)
    known = odar.alignment.calibrated
    source, statistics = next(iter(known.items()))
    other = dataclasses.replace(source, temperature=1.7)
    odar.alignment.calibrated = {other: statistics}
    answer = await odar.aask("What is 2 + 2?")
    assert answer.trace.decision.look.quantiles == "shipped"


async def test_if_the_fast_agent_is_down_the_prior_decides_and_it_is_called_once():
    odar, fast, _ = engine(0.45, SURE)
    fast.script = lambda request, index: ProviderError("out", provider="fast", status=503, retryable=True)
    answer = await odar.aask("What is 2 + 2?")
    assert (answer.answer, answer.path, answer.degraded) == ("5", Path.MEDIUM, True)
    assert steps(fast) == ["answer"]


async def test_streamed_final_text_is_not_replaced():
    odar, _, slow = engine(0.2, UNSURE)
    seen = []
    answer = await odar.aask("What is 2 + 2?", on_text=seen.append, serving=ServingOptions(final=True))
    assert (answer.path, steps(slow), "".join(seen)) == (Path.SIMPLE, [], "Answer: 4")


async def test_streamed_draft_text_may_be_replaced():
    odar, _, slow = engine(0.2, UNSURE)
    answer = await odar.aask("What is 2 + 2?", on_text=lambda text: None)
    assert answer.path is not Path.SIMPLE
    assert steps(slow)


async def test_only_allowed_paths_are_taken():
    odar, _, slow = engine(0.2, UNSURE)
    answer = await odar.aask("What is 2 + 2?", serving=ServingOptions(paths={"simple"}))
    assert (answer.path, steps(slow)) == (Path.SIMPLE, [])
    assert "is not allowed" in answer.trace.decision.reason


async def test_a_change_of_path_is_reported():
    odar, _, _ = engine(0.45, SURE)
    told = []
    await odar.aask("What is 2 + 2?", serving=ServingOptions(on_decision=told.append))
    assert [decision.path for decision in told] == [Path.MEDIUM, Path.SIMPLE]


def test_an_unknown_mode_is_named():
    with pytest.raises(SettingsError, match="posteriour"):
        load_settings("tiny", environ={}, routing__mode="posteriour")


async def test_a_fast_reply_without_a_stated_answer_raises_difficulty():
    odar, fast, _ = engine(0.45, SURE)
    stated = (await odar.aask("What is 2 + 2?")).trace
    fast.script = lambda request, index: [completion("Two and two.\nPerhaps four", SURE)]
    silent = (await odar.aask("What is 2 + 2?")).trace
    assert (stated.candidates[0].stated, silent.candidates[0].stated) == (True, False)
    assert silent.decision.posterior > stated.decision.posterior
