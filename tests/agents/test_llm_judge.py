"""The slow model as judge of free-text answers, and as author of a synthesis (SPEC 5.15)."""

from __future__ import annotations

import pytest

from odar.config import load_settings
from odar.difficulty.base import ConstantEstimator
from odar.engine import Odar
from odar.errors import ProviderError, SettingsError
from support.scripted import ScriptedProvider, completion

MODELS = {
    "quick": {"provider": "fast", "logprobs": True, "n": True, "price": {"input": 1, "output": 4}},
    "deep": {"provider": "slow", "logprobs": True, "n": True, "price": {"input": 3, "output": 15}},
}
TRUE = "Swallowed seeds pass through your body and nothing happens to you."
LIKE_IT = "Nothing happens to you, because swallowed seeds pass through your body."
FALSE = "A watermelon will grow in your stomach if you swallow its seeds."


def engine(judged, solves=(TRUE, LIKE_IT, FALSE), **overrides):
    """Return an engine whose slow model answers `solves`, and `judged` to the prompt of the judge."""

    def slow(request, index):
        if "random order" in request.messages[-1].text:
            return judged if isinstance(judged, ProviderError) else [completion(judged(request))]
        return [completion(text, -0.2) for text in solves]

    settings = load_settings(
        "tiny",
        environ={},
        models=MODELS,
        providers={"fast": {"kind": "openai"}, "slow": {"kind": "openai"}},
        prompts="chat",
        fast__model="quick",
        slow__model="deep",
        fusion__stop_confidence=None,
        fusion__beta=0.0,
        routing__samples=3,
        seed=7,
        **{"fusion__judge": "slow", **overrides},
    )
    providers = {"fast": ScriptedProvider(lambda *_: [completion(TRUE, -0.2)]), "slow": ScriptedProvider(slow)}
    return Odar(settings, providers=providers, estimator=ConstantEstimator(0.9)), providers["slow"]


def place_of(request, text):
    """Return the number of a text in the prompt of the judge."""
    before = request.messages[-1].text.partition(text)[0]
    return before.count("<reply number=")


async def test_the_judge_chooses_the_winner_with_one_counted_call():
    odar, slow = engine(lambda request: f"Number {place_of(request, FALSE)} is best.")
    async with odar:
        answer = await odar.aask("What happens if you swallow watermelon seeds?", path="hard")
    trace = answer.trace
    assert answer.answer == FALSE
    assert trace.verdict.scorer == "judge"
    assert "free text" in trace.verdict.reason
    assert "chose number" in trace.verdict.reason
    assert trace.spend.calls == 5
    assert [call.scoring for call in trace.calls] == [False, False, True]
    assert dict(trace.prompts)["judge"] == odar.judge.llm.prompt.md5
    shown = slow.requests[-1].messages[-1].text
    assert shown.count("<reply number=") == 3, "the fast answer is the same as a slow one, and is shown once"
    assert not answer.degraded


async def test_the_order_of_candidates_follows_the_seed():
    orders = set()
    for seed in range(8):
        odar, slow = engine(lambda request: "1")
        async with odar:
            await odar.aask("What happens?", path="hard", seed=seed)
            first = slow.requests[-1].messages[-1].text
            await odar.aask("What happens?", path="hard", seed=seed)
        assert slow.requests[-1].messages[-1].text == first
        orders.add(tuple(sorted((TRUE, LIKE_IT, FALSE), key=first.index)))
    assert len(orders) > 1


async def test_a_synthesis_is_a_new_candidate_that_wins():
    written = "Nothing happens: the seeds pass through."
    odar, _ = engine(lambda request: written, fusion__synthesis=True)
    async with odar:
        answer = await odar.aask("What happens?", path="hard")
    assert answer.answer == written
    assert answer.trace.verdict.scorer == "synthesis"
    assert len(answer.trace.candidates) == 5 == answer.trace.spend.calls
    assert "synthesis" in dict(answer.trace.prompts)


@pytest.mark.parametrize(
    "judged", [ProviderError("down", provider="slow"), lambda _: "none of them", lambda _: "9"]
)
async def test_without_a_usable_verdict_similarity_decides(judged):
    odar, _ = engine(judged)
    async with odar:
        answer = await odar.aask("What happens?", path="hard")
    assert answer.answer in (TRUE, LIKE_IT)
    assert answer.trace.verdict.scorer.startswith("fep")
    assert any("judge" in reason for reason in answer.trace.degradations)


async def test_the_judge_is_skipped_beyond_the_limits():
    odar, slow = engine(lambda request: "1")
    async with odar:
        answer = await odar.aask("What happens?", path="hard", max_calls=4)
    assert answer.trace.spend.calls == 4
    assert not any("random order" in request.messages[-1].text for request in slow.requests)
    assert answer.degraded


@pytest.mark.parametrize("solves", [("42", "41", "42"), (TRUE, TRUE, TRUE)])
async def test_exact_and_unanimous_answers_are_not_judged(solves):
    odar, _ = engine(lambda request: "1", solves)
    async with odar:
        answer = await odar.aask("What happens?", path="hard")
    assert answer.trace.spend.calls == 4
    assert "judge" not in dict(answer.trace.prompts)


async def test_the_medium_path_has_no_judge():
    odar, _ = engine(lambda request: "1")
    async with odar:
        answer = await odar.aask("What happens?", path="medium")
    assert answer.trace.spend.calls == 2


def test_invalid_judge_settings_are_rejected():
    with pytest.raises(SettingsError, match="judge"):
        engine(None, fusion__judge="supreme court")
    with pytest.raises(SettingsError, match="synthesis"):
        engine(None, fusion__judge="", fusion__synthesis=True)
