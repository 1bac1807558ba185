from __future__ import annotations

import pytest

from odar.conversation import ChatParameters, Format
from odar.providers.base import Completion, Reply, Request, Sampling
from odar.settings import ProviderSettings
from odar.telemetry.spans import request_attributes, result_attributes, server_attributes
from odar.types import Usage
from support.traces import make_answer


@pytest.mark.parametrize(
    ("url", "address", "port"),
    [
        ("https://api.openai.com/v1", "api.openai.com", 443),
        ("http://10.0.0.1/v1", "10.0.0.1", 80),
        ("http://user:secret@host:81/v1?key=secret", "host", 81),
        ("http://[::1]:9/v1", "::1", 9),
    ],
)
def test_server_attributes_have_no_password(url, address, port):
    found = server_attributes("mine", ProviderSettings(kind="openai", base_url=url))
    assert found == {"gen_ai.provider.name": "mine", "server.address": address, "server.port": port}


@pytest.mark.parametrize("url", ["", "http://[broken/v1", "http://h:port/"])
def test_an_invalid_address_is_omitted(url):
    settings = ProviderSettings(kind="openai", base_url=url)
    assert server_attributes("mine", settings) == {"gen_ai.provider.name": "mine"}


def known(attributes):
    return {name: value for name, value in attributes.items() if value is not None}


def test_request_attributes_have_only_requested_options():
    plain = known(request_attributes(Request("m", (), Sampling(0.2, 0.9, 512)), stream=False))
    assert plain == {
        "gen_ai.request.model": "m",
        "gen_ai.request.temperature": 0.2,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.max_tokens": 512,
    }
    form = ChatParameters(format=Format())
    full = request_attributes(Request("m", (), Sampling(0.0, 0.9, 512, seed=0), n=5, parameters=form), stream=True)
    assert full["gen_ai.request.temperature"] == 0.0
    assert full["gen_ai.request.seed"] == 0
    assert full["gen_ai.request.choice.count"] == 5
    assert full["gen_ai.request.stream"] is True
    assert full["gen_ai.output.type"] == "json"


def test_reply_attributes_have_only_known_values():
    assert known(result_attributes(Reply((), Usage(None, None, None, None)))) == {}
    completions = (Completion("a"), Completion("b", finish="length"))
    found = known(result_attributes(Reply(completions, Usage(10, 0, 5, None), "m-1", 2)))
    assert found == {
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.response.model": "m-1",
        "gen_ai.response.finish_reasons": ["stop", "length"],
        "odar.retries": 2,
    }


@pytest.mark.parametrize(("cost", "told"), [(0.002, True), (0.0, True), (None, False)])
def test_an_unknown_cost_is_omitted(cost, told):
    found = known(result_attributes(make_answer(cost=cost)))
    assert ("odar.cost_usd" in found) is told


def test_attributes_contain_no_text():
    answer = make_answer(text="The zanzibar is far", cue="keywords: zanzibar")
    facts = (answer, *answer.trace.decisions, answer.trace.verdict)
    assert "zanzibar" not in str([result_attributes(fact) for fact in facts])
