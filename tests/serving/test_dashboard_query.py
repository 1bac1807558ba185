from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.serving.dashboard_api import TraceQuery
from odar.serving.errors import ApiError
from odar.traces.filter import Filter

NAMES = Filter.__struct_fields__


def test_every_field_of_the_filter_is_a_parameter():
    asked = {
        "since": "2026-11-15",
        "until": "2026-11-16T10:00:00Z",
        "path": "direct",
        "status": "cancelled",
        "degraded": "false",
        "model": "m",
        "key": "key_1",
        "min_cost": "0",
        "max_cost": "1e-3",
        "min_difficulty": "0.25",
        "max_difficulty": "1",
        "id": "3f2a",
        "feedback": "none",
        "text": "Paris?",
    }
    assert set(asked) == set(NAMES)
    query = TraceQuery.read(asked)
    found = {name: getattr(query, name) for name in NAMES}
    assert found.pop("degraded") is False
    for name in ("min_cost", "max_cost", "min_difficulty", "max_difficulty"):
        assert found.pop(name) == float(asked[name])
    assert found == {name: asked[name] for name in found}


@pytest.mark.parametrize("params", [{}, dict.fromkeys(NAMES, ""), {"unknown": "x", "limit": "3"}])
def test_missing_and_empty_parameters_do_not_filter(params):
    query = TraceQuery.read(params)
    assert all(getattr(query, name) is None for name in NAMES)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("step", "week", "is not one of: day, hour, minute"),
        ("path", "Hard", "is not one of: .*simple"),
        ("status", "OK", "is not one of: .*cancelled"),
        ("degraded", "yes", "must be a boolean"),
        ("feedback", "Right", "is not one of: .*wrong"),
        ("min_cost", "$1", "must be a number"),
        ("max_cost", "1,5", "must be a number"),
        ("max_cost", "inf", "must be a number"),
        ("min_difficulty", "-nan", "must be a number"),
        ("text", "x" * 201, "length <= 200"),
        ("id", "a\0", "must be a string"),
        ("model", "\0" * 200, "must be a string"),
    ],
)
def test_invalid_parameters_are_named(name, value, why):
    with pytest.raises(ApiError, match=why) as raised:
        TraceQuery.read({name: value})
    assert (raised.value.status, raised.value.param) == (400, name)


@pytest.mark.parametrize(("text", "limit"), [("", 50), ("1", 1), ("200", 200)])
def test_valid_page_sizes(text, limit):
    assert TraceQuery.read({"limit": text}).limit == limit


@pytest.mark.parametrize("text", ["0", "201", "-1", "+5", "ten", "٣", " 5", "9" * 150])
def test_invalid_page_sizes(text):
    with pytest.raises(ApiError) as raised:
        TraceQuery.read({"limit": text})
    assert raised.value.param == "limit"


@given(st.dictionaries(st.sampled_from([*NAMES, "limit", "step", "after"]), st.text(max_size=210)))
def test_any_query_is_parsed_or_rejected(params):
    try:
        TraceQuery.read(params)
    except ApiError as refusal:
        assert refusal.status == 400
        assert refusal.param in params
