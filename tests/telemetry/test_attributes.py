from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.conversation import Format, Image, Message, Options, ToolCall
from odar.errors import BudgetExceeded, ProviderError, ProviderTimeout
from odar.providers.base import Completion, Reply, Request, Sampling
from odar.settings import ProviderSettings
from odar.telemetry.attributes import (
    input_messages,
    of_agent,
    of_answer,
    of_decision,
    of_error,
    of_fusion,
    of_reply,
    of_request,
    of_scope,
    of_server,
    output_messages,
)
from odar.types import Step, Usage
from support.traces import make_answer


def provider(url: str, kind: str = "openai") -> ProviderSettings:
    return ProviderSettings(kind=kind, base_url=url)


@pytest.mark.parametrize(
    ("settings", "name", "address", "port"),
    [
        (provider("https://api.openai.com/v1"), "openai", "api.openai.com", 443),
        (provider("https://api.deepseek.com"), "deepseek", "api.deepseek.com", 443),
        (provider("https://api.anthropic.com", "anthropic"), "anthropic", "api.anthropic.com", 443),
        (provider("http://proxy:8080", "anthropic"), "anthropic", "proxy", 8080),
        (provider("http://10.0.0.1/v1"), "mine", "10.0.0.1", 80),
        (provider("http://user:secret@host:81/v1?key=secret"), "mine", "host", 81),
        (provider("http://[::1]:9/v1"), "mine", "::1", 9),
    ],
)
def test_who_is_called_and_where_without_a_password(settings, name, address, port):
    found = of_server("mine", settings)
    assert found == {"gen_ai.provider.name": name, "server.address": address, "server.port": port}
    assert "secret" not in str(found)


@pytest.mark.parametrize(
    "settings", [None, provider(""), provider("http://[broken/v1"), provider("http://h:port/")]
)
def test_an_address_that_is_none_is_left_out(settings):
    assert of_server("mine", settings) == {"gen_ai.provider.name": "mine"}


def test_a_request_says_what_it_asks_for_and_nothing_that_was_not_asked():
    plain = of_request(Request("m", (), Sampling(0.2, 0.9, 512)), stream=False)
    assert plain == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.request.temperature": 0.2,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.max_tokens": 512,
    }
    form = Options(format=Format())
    full = of_request(Request("m", (), Sampling(0.0, 0.9, 512, seed=0), n=5, options=form), stream=True)
    assert full["gen_ai.request.temperature"] == 0.0  # nothing, and known
    assert full["gen_ai.request.seed"] == 0
    assert full["gen_ai.request.choice.count"] == 5
    assert full["gen_ai.request.stream"] is True
    assert full["gen_ai.output.type"] == "json"


def test_a_reply_says_what_is_known():
    assert of_reply(Reply((), Usage(None, None, None, None))) == {}
    found = of_reply(Reply((Completion("a"), Completion("b", finish="length")), Usage(10, 0, 5, None), "m-1", 2))
    assert found == {
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.response.model": "m-1",
        "gen_ai.response.finish_reasons": ["stop", "length"],
        "odar.retries": 2,
    }


@pytest.mark.parametrize("step", list(Step))
def test_an_agent_goes_by_its_role(step):
    found = of_agent(step, "m")
    assert found["gen_ai.agent.name"] == step.role.value
    assert found["odar.step"] == step.value


def test_free_energies_are_told_where_every_candidate_has_them():
    trace = make_answer().trace
    whole = of_fusion(trace.candidates, trace.verdict)
    assert whole["odar.free_energies"] == [0.102, 0.102]
    assert "odar.aligned_free_energies" not in whole  # one of them is not aligned
    assert whole["odar.weights"] == [0.4, 0.6]
    energy = trace.candidates[1].energy
    aligned = [replace(candidate, energy=energy) for candidate in trace.candidates]
    assert of_fusion(aligned, trace.verdict)["odar.aligned_free_energies"] == [-0.5, -0.5]
    missing = [replace(trace.candidates[0], energy=None), trace.candidates[1]]
    assert not {"odar.free_energies", "odar.aligned_free_energies"} & set(of_fusion(missing, trace.verdict))


@pytest.mark.parametrize(("cost", "told"), [(0.002, True), (0.0, True), (None, False)])
def test_an_unknown_cost_is_left_out_and_never_zero(cost, told):
    found = of_answer(make_answer(cost=cost))
    assert ("odar.cost_usd" in found) is told
    assert "odar.posterior" not in found


def test_no_word_of_a_query_or_an_answer_is_an_attribute():
    answer = make_answer(text="The zanzibar is far", cue="keywords: zanzibar")
    found = {
        **of_answer(answer),
        **of_decision(answer.trace.decision),
        **of_fusion(answer.trace.candidates, answer.trace.verdict),
    }
    assert "zanzibar" not in str(found)


class Odd(Exception):
    """Of another package."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ProviderError("no", status=503), "503"),
        (ProviderError("no"), "ProviderError"),
        (ProviderTimeout("no"), "ProviderTimeout"),
        (BudgetExceeded("no"), "BudgetExceeded"),
        (TimeoutError("no"), "TimeoutError"),
        (Odd("sk-secret"), "Odd"),
    ],
)
def test_a_failure_has_a_kind_and_no_words(error, kind):
    assert of_error(error) == {"error.type": kind}


def test_a_request_that_came_in_is_known_by_its_route_and_not_by_its_query():
    scope = {"method": "GET", "path": "/v1/models", "scheme": "https", "query_string": b"key=secret"}
    found = of_scope(scope)
    assert found["http.request.method"] == "GET" and found["url.scheme"] == "https"
    assert "secret" not in str(found)
    assert of_scope({})["http.request.method"] == "POST"


def test_conversations_as_the_conventions_write_them():
    turns = [
        Message("system", "Be brief."),
        Message("user", "What is it?", images=(Image("image/png", b"pixels"),)),
        Message("assistant", "", tool_calls=(ToolCall("c1", "look", '{"at": 1}'), ToolCall("c2", "look", "{"))),
        Message("tool", "a cat", tool_call_id="c1"),
    ]
    system, user, assistant, tool = json.loads(input_messages(turns))
    assert system["parts"] == [{"type": "text", "content": "Be brief."}]
    assert user["parts"][1] == {"type": "blob", "modality": "image", "mime_type": "image/png"}
    assert [part["arguments"] for part in assistant["parts"]] == [{"at": 1}, "{"]  # broken JSON as it was written
    assert tool["parts"] == [{"type": "tool_call_response", "id": "c1", "response": "a cat"}]
    assert "pixels" not in input_messages(turns)


def test_what_a_model_wrote_one_message_a_sample():
    called = Completion("", finish="tool_calls", tool_calls=(ToolCall("c1", "look", "{}"),))
    first, second = json.loads(output_messages([Completion("é"), called]))
    assert first == {"role": "assistant", "parts": [{"type": "text", "content": "é"}], "finish_reason": "stop"}
    assert second["parts"] == [{"type": "tool_call", "id": "c1", "name": "look", "arguments": {}}]
    assert second["finish_reason"] == "tool_calls"


@given(
    st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), st.text(max_size=30), st.text(max_size=30)))
)
def test_any_text_and_any_arguments_travel(turns):
    messages = [Message(role, text, tool_calls=(ToolCall("i", "f", said),)) for role, text, said in turns]
    assert len(json.loads(input_messages(messages))) == len(turns)


numbers = st.none() | st.integers(0, 10**9)


@given(st.builds(Usage, numbers, numbers, numbers, numbers), st.floats(allow_nan=False) | st.none())
def test_attributes_are_of_the_kinds_that_spans_can_hold(usage, temperature):
    request = Request("m", (), Sampling(temperature, None, None))
    for value in {**of_reply(Reply((), usage)), **of_request(request, stream=False)}.values():
        assert isinstance(value, str | bool | int | float)
        assert value is not None and not (isinstance(value, float) and math.isnan(value))


def test_what_is_not_aligned_is_left_out_and_not_told_as_nothing():
    trace = make_answer().trace
    partly, wholly = trace.candidates
    assert "odar.aligned_free_energies" not in of_fusion((partly, wholly), trace.verdict)
    assert of_fusion((wholly, wholly), trace.verdict)["odar.aligned_free_energies"] == [-0.5, -0.5]
    unscored = replace(wholly, energy=None)
    assert not [name for name in of_fusion((wholly, unscored), trace.verdict) if "free_energies" in name]
    assert "odar.weights" not in of_fusion((wholly, wholly), replace(trace.verdict, weights=()))
