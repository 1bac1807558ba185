from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.conversation import ChatParameters, Format, Tool, ToolCall, ToolChoice
from odar.policy.equivalence import call_key, canonical_json
from odar.response_format import format_fault

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Tool("weather", "", CITY)


def call(arguments: str, name: str = "weather") -> tuple[ToolCall, ...]:
    return (ToolCall("1", name, arguments),)


@pytest.mark.parametrize(
    ("text", "calls", "parameters", "fault"),
    [
        ("anything", (), ChatParameters(), ""),
        ("[1]", (), ChatParameters(format=Format()), "not a JSON object"),
        ('{"city": "Rome"}', (), ChatParameters(format=Format(CITY)), ""),
        ('{"town": "Rome"}', (), ChatParameters(format=Format(CITY)), "does not fit the schema"),
        ('```json\n{"city": "Rome"}\n```', (), ChatParameters(format=Format(CITY)), "not JSON"),
        ("no", (), ChatParameters(tools=(WEATHER,), tool_choice=ToolChoice("required")), "required and none"),
        ("", call('{"city": "Rome"}'), ChatParameters(tools=(WEATHER,), format=Format(CITY)), ""),
        ("", call("{}"), ChatParameters(tools=(WEATHER,)), "do not fit"),
        ("", call("{"), ChatParameters(tools=(WEATHER,)), "not JSON"),
        ("", call("{}", "mail"), ChatParameters(tools=(WEATHER,)), "no tool 'mail'"),
        ("", call("{}"), ChatParameters(tools=(WEATHER,), tool_choice=ToolChoice("none")), "tool_choice is none"),
        (
            "",
            call("{}"),
            ChatParameters(tools=(WEATHER,), tool_choice=ToolChoice("tool", "mail")),
            "in place of 'mail'",
        ),
        ("", call("", "now"), ChatParameters(tools=(Tool("now"),)), ""),
    ],
)
def test_faults(text, calls, parameters, fault):
    found = format_fault(text, calls, parameters)
    assert fault in found
    assert bool(fault) == bool(found)


def test_calls_are_equal_in_any_order_and_case_matters():
    one, two = ToolCall("1", "f", '{"x": 1}'), ToolCall("2", "g", "{}")
    assert call_key([one, two]) == call_key([two, one])
    assert call_key(call('{"city": "rome"}')) != call_key(call('{"city": "Rome"}'))


@given(st.text())
def test_canonical_json_never_raises(text):
    assert canonical_json(canonical_json(text)) == canonical_json(text)
