"""Conversations through the engine: turns, tools, formats and options of the client on every path."""

from __future__ import annotations

import json

import pytest

from odar.config import load_settings
from odar.conversation import ChatParameters, Format, Message, Tool, ToolCall, ToolChoice
from odar.difficulty.base import ConstantEstimator
from odar.engine import Odar
from odar.errors import ProviderError
from odar.options import AskOptions
from odar.providers.base import Completion, Delta
from odar.types import Query, Route
from support.scripted import ScriptedProvider, completion

DOWN = ProviderError("out of order", provider="p", status=503, retryable=True)
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TURNS = (Message("system", "Speak like a pirate."), Message("user", "What is 2 + 2?"))


def engine(fast, slow, difficulty=0.5, kind="openai", **overrides):
    base = {
        "prompts": "chat",
        "models": {
            "quick": {"provider": "fast", "logprobs": True, "n": True, "drop": ["top_p"]},
            "deep": {"provider": "slow", "logprobs": True, "n": True},
        },
        "providers": {"fast": {"kind": kind}, "slow": {"kind": kind}},
        "policy": "paper",
        "fast__model": "quick",
        "slow__model": "deep",
    }
    settings = load_settings("tiny", environ={}, **{**base, **overrides})
    providers = {"fast": ScriptedProvider(fast, "fast"), "slow": ScriptedProvider(slow, "slow")}
    return Odar(settings, providers=providers, estimator=ConstantEstimator(difficulty)), *providers.values()


def say(text, logprob=-0.1):
    return lambda request, index: [completion(text, logprob)] * request.n


def calls(*arguments, name="weather"):
    """Return a script whose completions call a tool with each of the arguments in turn."""

    def script(request, index):
        return [
            Completion("", finish="tool_calls", tool_calls=(ToolCall(str(i), name, arguments[i % len(arguments)]),))
            for i in range(request.n)
        ]

    return script


@pytest.mark.parametrize("path", list(Route))
async def test_both_agents_get_the_clients_turns_unchanged(path):
    odar, fast, slow = engine(say("Four, arr."), say("Four, arr!"))
    answer = await odar.aask(Query.from_messages(TURNS), path=path)
    assert fast.requests[0].messages == TURNS
    assert all(request.messages[:2] == TURNS for request in slow.requests)
    assert answer.text in ("Four, arr.", "Four, arr!")


async def test_the_verifier_sees_the_whole_draft_and_its_reply_is_the_text():
    odar, _, slow = engine(say("Long draft. Answer: 5"), say("CORRECT spelling is hard.", -0.01))
    answer = await odar.aask(Query.from_messages(TURNS), path="medium")
    assert "Long draft. Answer: 5" in slow.requests[0].messages[-1].text
    assert answer.trace.candidates[1].judgment is None
    assert answer.text == "CORRECT spelling is hard."


async def test_the_clients_sampling_overrides_that_of_the_agent():
    parameters = ChatParameters(temperature=0.9, max_tokens=7, stop=("X",), seed=5, top_logprobs=3, user="ann")
    odar, fast, _ = engine(say("4"), say("4"))
    await odar.aask(Query.from_messages(TURNS, parameters), path="simple")
    (request,) = fast.requests
    sampling = request.sampling
    assert (sampling.temperature, sampling.max_tokens, sampling.stop, sampling.seed) == (0.9, 7, ("X",), 5)
    assert sampling.top_p == 0.9  # the agent's own
    assert request.parameters == parameters


@pytest.mark.parametrize("path", list(Route))
async def test_a_tool_call_can_win_on_every_path(path):
    parameters = ChatParameters(tools=(Tool("weather", "", CITY),))
    script = calls('{"city": "Rome"}')
    odar, _, _ = engine(script, script)
    answer = await odar.aask(Query.from_messages(TURNS, parameters), path=path)
    winner = answer.trace.candidates[answer.trace.verdict.winner]
    assert winner.tool_calls[0].name == "weather"
    assert not answer.degraded


async def test_equal_tool_calls_are_counted_together_and_invalid_ones_lose():
    parameters = ChatParameters(tools=(Tool("weather", "", CITY),))
    odar, _, _ = engine(
        calls('{"city": "Oslo"}'),
        calls('{"city": "Rome"}', '{"city":  "Rome"}', '{"town": 1}', '{"town": 1}', '{"town": 1}'),
    )
    answer = await odar.aask(Query.from_messages(TURNS, parameters), path="hard")
    winner = answer.trace.candidates[answer.trace.verdict.winner]
    assert json.loads(winner.tool_calls[0].arguments) == {"city": "Rome"}
    assert "3 of 6 did not keep to the form" in answer.trace.verdict.reason


async def test_an_answer_that_does_not_fit_the_schema_loses_or_is_marked():
    parameters = ChatParameters(format=Format(CITY))
    odar, _, _ = engine(say('{"city": "Rome"}'), say("Rome it is", -0.001))
    answer = await odar.aask(Query.from_messages(TURNS, parameters), path="hard")
    assert (answer.text, answer.degraded) == ('{"city": "Rome"}', False)
    odar, _, _ = engine(say("Rome"), say("Rome it is"))
    answer = await odar.aask(Query.from_messages(TURNS, parameters), path="medium")
    assert any("not JSON" in reason for reason in answer.trace.degradations)


async def test_an_answer_without_the_required_tool_call_loses():
    parameters = ChatParameters(tools=(Tool("weather", "", CITY),), tool_choice=ToolChoice("required"))
    odar, _, _ = engine(calls('{"city": "Rome"}'), say("It is sunny.", -0.001))
    answer = await odar.aask(Query.from_messages(TURNS, parameters), path="medium")
    assert answer.trace.verdict.winner == 0


@pytest.mark.parametrize(("path", "fast_n", "slow_n"), [("simple", 3, 0), ("medium", 1, 3), ("hard", 1, 5)])
async def test_n_answers_are_returned_on_every_path(path, fast_n, slow_n):
    odar, fast, slow = engine(say("4"), say("4"))
    answer = await odar.aask(Query.from_messages(TURNS, ChatParameters(n=3)), path=path)
    assert sum(request.n for request in fast.requests) == fast_n
    assert sum(request.n for request in slow.requests) == slow_n
    assert len(answer.trace.candidates) >= 3


class TestNamedModel:
    async def test_no_settings_of_the_agents_are_sent(self):
        odar, fast, slow = engine(say("4"), say("4"))
        answer = await odar.aask(Query.from_messages(TURNS), options=AskOptions(model="quick"))
        (request,) = fast.requests
        sampling = request.sampling
        assert (sampling.temperature, sampling.top_p, sampling.max_tokens, sampling.stop) == (None, None, None, ())
        assert (request.logprobs, request.drop, request.extra) == (False, ("top_p",), {})  # the model refuses it
        assert request.messages == TURNS
        assert slow.requests == []
        assert answer.trace.plan.assignment.cue == "model named by the caller"

    async def test_a_failure_is_raised_without_a_fallback(self):
        odar, _, slow = engine(lambda request, index: DOWN, say("4"))
        with pytest.raises(ProviderError) as caught:
            await odar.aask(Query.from_messages(TURNS), options=AskOptions(model="quick"))
        assert caught.value is DOWN
        assert slow.requests == []


async def test_a_failure_after_a_streamed_delta_is_raised():
    def breaks(request, index):
        return DOWN

    odar, fast, slow = engine(breaks, say("4"))
    original = fast.complete

    async def hand_over_then_break(request, on_text=None):
        on_text(Delta("Fo"))
        return await original(request, on_text)

    fast.complete = hand_over_then_break
    pieces: list[Delta] = []
    with pytest.raises(ProviderError):
        await odar.aask(Query.from_messages(TURNS), path="simple", options=AskOptions(on_delta=pieces.append))
    assert (pieces, slow.requests) == ([Delta("Fo")], [])
    assert (await odar.aask(Query.from_messages(TURNS), path="simple", on_text=[].append)).degraded


async def test_a_local_model_gets_no_tools_and_the_answer_is_degraded():
    odar, *_ = engine(say("Sunny."), say("Sunny."), kind="local")
    query = Query.from_messages(TURNS, ChatParameters(tools=(Tool("weather", "The weather.", CITY),)))
    answer = await odar.aask(query, path=Route.SIMPLE)
    assert any("get no tools" in reason for reason in answer.trace.degradations)


def cascade_of_three(cheap, dear):
    """Two cheap models of different families with one script, and a slow one that is ten times as expensive."""
    low = {"provider": "fast", "logprobs": True, "n": True, "price": {"input": 1, "output": 4}}
    high = {"provider": "slow", "logprobs": True, "n": True, "price": {"input": 10, "output": 40}}
    models = {"quick": low, "other": {**low, "family": "other"}, "deep": high}
    return engine(cheap, dear, difficulty=0.1, policy="cascade", models=models, second__model="other")


@pytest.mark.parametrize(("said", "asks_slow"), [("Answer: 1609", False), ("I do not know that.", True)])
async def test_models_that_know_no_answer_agree_on_nothing(said, asks_slow):
    odar, _, slow = cascade_of_three(say(said), say("Answer: 1967"))
    answer = await odar.aask("In which year did The Master and Margarita appear?")
    assert bool(slow.requests) is asks_slow
    assert answer.final == ("1967" if asks_slow else "1609")


async def test_a_tool_call_on_which_fast_and_second_agree_at_quality():
    """Without the dial, one call is enough: no public recording teaches how likely a tool call is right."""
    script = calls('{"city": "Rome"}', '{"city":  "Rome"}')
    odar, _, slow = cascade_of_three(script, script)
    query = Query.from_messages(
        (Message("user", "How warm is it in Rome?"),), ChatParameters(tools=(Tool("weather", "", CITY),))
    )
    answer = await odar.aask(query, dial="quality")
    assert [str(each.stage) for each in answer.trace.decisions if each.stage] == ["fast", "second"]
    assert (answer.trace.candidates[0].tool_calls[0].name, slow.requests) == ("weather", [])
    assert (await odar.aask(query)).trace.spend.calls == 1
