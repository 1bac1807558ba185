"""Cut-off answers (SPEC 3.6): continued once by a counted call, bounded by the limits, and reported."""

from __future__ import annotations

import pytest

from odar.agents.ledger import worst_cost
from odar.config import load_settings
from odar.conversation import ChatParameters
from odar.difficulty.base import ConstantEstimator
from odar.engine import Odar
from odar.types import Query, Route, Step
from support.scripted import ScriptedProvider, completion

MODELS = {
    "quick": {"provider": "p", "logprobs": True, "n": True, "price": {"input": 1, "output": 4}},
    "deep": {"provider": "p", "logprobs": True, "n": True, "price": {"input": 3, "output": 15}},
}
CUT = completion("First we add the two", finish="length")


def engine(script, kind="openai", **overrides):
    provider = ScriptedProvider(script, "p")
    settings = load_settings(
        "tiny",
        environ={},
        models=MODELS,
        providers={"p": {"kind": kind}},
        fast__model="quick",
        slow__model="deep",
        **{"prompts": "paper", **overrides},
    )
    return Odar(settings, providers={"p": provider}, estimator=ConstantEstimator(0.1)), provider


def continued(request):
    return any(turn.role == "assistant" and turn.text.startswith("First we add") for turn in request.messages)


def cut_then(rest):
    return lambda request, index: [rest if continued(request) else CUT] * request.n


@pytest.mark.parametrize(("kind", "added"), [("openai", ["assistant", "user"]), ("local", ["assistant"])])
async def test_a_cut_off_answer_is_continued_by_one_counted_call(kind, added):
    odar, provider = engine(cut_then(completion(" numbers.\nAnswer: 4")), kind)
    answer = await odar.aask("What is 2 + 2?", path="simple")
    assert (answer.final, answer.degraded, answer.trace.spend.calls) == ("4", False, 2)
    first, second = provider.requests
    assert [turn.role for turn in second.messages[len(first.messages) :]] == added
    (candidate,) = answer.trace.candidates
    assert candidate.text.startswith("First we add the two") and candidate.text.endswith("Answer: 4")
    assert (candidate.finish, len(candidate.tokens)) == ("stop", len(CUT.tokens) + 3)
    assert answer.trace.spend.cost_usd == pytest.approx(2 * (10 * 1 + 5 * 4) / 1e6)


@pytest.mark.parametrize(("question", "calls"), [("What is 17% of 350?", 2), ("Write a poem about rain.", 1)])
async def test_an_exact_question_in_the_users_own_words_is_continued_too(question, calls):
    odar, provider = engine(
        cut_then(completion(" numbers, which is 59.5.")), "local", policy="slow", prompts="default"
    )
    answer = await odar.aask(question)
    assert "Answer:" not in provider.requests[0].messages[-1].text  # nothing asks for a marked answer
    assert (answer.trace.spend.calls, answer.degraded) == (calls, calls == 1)
    assert calls == 1 or answer.text == "First we add the two numbers, which is 59.5."


async def test_a_second_cut_off_names_the_tokens_needed():
    odar, provider = engine(cut_then(completion(" numbers and then", finish="length")))
    answer = await odar.aask("What is 2 + 2?", path="simple")
    assert len(provider.requests) == 2
    limit = odar.settings.fast.max_tokens
    (said,) = answer.trace.degradations
    assert (
        said
        == f"fast agent: the answer was cut off at {limit} tokens; about {4 * limit} would do (fast.max_tokens)"
    )


@pytest.mark.parametrize(
    ("options", "overrides"),
    [
        ({"max_calls": 1}, {}),
        ({"max_cost_usd": "one call"}, {}),
        ({}, {"policy": "paper"}),
    ],
)
async def test_limits_or_the_papers_policy_prevent_a_continuation(options, overrides):
    odar, provider = engine(cut_then(completion("Answer: 4")), **overrides)
    if "max_cost_usd" in options:
        messages, limit = (
            odar.agents.prompts.exact[Step.ANSWER].messages(Query("What is 2 + 2?")),
            odar.settings.fast.max_tokens,
        )
        options = {"max_cost_usd": worst_cost(odar.settings.card("quick"), messages, limit)}
    answer = await odar.aask("What is 2 + 2?", path="simple", **options)
    assert len(provider.requests) == 1
    assert answer.trace.candidates[0].finish == "length"
    assert "was cut off" in answer.trace.degradations[0]


async def test_an_answer_cut_off_by_the_clients_limit_is_not_continued():
    odar, provider = engine(cut_then(completion("Answer: 4")))
    answer = await odar.aask(Query("What is 2 + 2?", parameters=ChatParameters(max_tokens=5)))
    assert (len(provider.requests), answer.degraded) == (1, False)


async def test_samples_are_continued_and_do_not_vote_if_still_cut_off():
    def script(request, index):
        if continued(request):
            return [completion(" numbers", finish="length")]
        return [CUT, *[completion("Answer: 4")] * (request.n - 1)] if request.n > 1 else [completion("Answer: 4")]

    odar, _ = engine(script)
    answer = await odar.aask("What is 2 + 2?", path="hard")
    assert (answer.path, answer.final, answer.trace.spend.calls) == (Route.HARD, "4", 7)
    cut = [i for i, candidate in enumerate(answer.trace.candidates) if candidate.finish == "length"]
    assert [answer.trace.verdict.weights[i] for i in cut] == [0.0]
    assert not any("slow" in each for each in answer.trace.degradations)  # one of five is not most
