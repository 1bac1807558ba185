from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.gateway.dashboard import MOST, read_cursor, read_filter, read_limit, read_step
from odar.gateway.errors import ApiError
from odar.store.record import Cursor, Filter

NAMES = [field.name for field in dataclasses.fields(Filter)]


def test_every_field_of_a_filter_can_be_asked_for():
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
        "min_difficulty": ".25",
        "max_difficulty": "1",
        "id": "3f2a",
        "feedback": "none",
        "text": "Paris?",
    }
    assert set(asked) == set(NAMES)
    found = dataclasses.asdict(read_filter(asked))
    assert found.pop("degraded") is False
    for name in ("min_cost", "max_cost", "min_difficulty", "max_difficulty"):
        assert found.pop(name) == float(asked[name])
    assert found == {name: asked[name] for name in found}


@pytest.mark.parametrize("params", [{}, dict.fromkeys(NAMES, ""), {"unknown": "x", "limit": "3"}])
def test_what_is_left_out_or_empty_does_not_narrow(params):
    assert read_filter(params) == Filter()


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("path", "Hard", "not one of: simple, medium, hard, direct"),
        ("status", "OK", "not one of: ok, error, cancelled"),
        ("degraded", "1", "not one of: true, false"),
        ("feedback", "Right", "not one of: right, wrong, none"),
        ("min_cost", "$1", "is not a number"),
        ("max_cost", "1,5", "is not a number"),
        ("max_cost", "inf", "is not a number"),
        ("min_difficulty", "-nan", "is not a number"),
        ("text", "x" * 201, "has 201 characters"),
        ("id", "a\0", "NUL"),
        ("model", "\0" * 200, "NUL"),
    ],
)
def test_what_is_wrong_is_named(name, value, why):
    with pytest.raises(ApiError, match=why) as raised:
        read_filter({name: value})
    assert (raised.value.status, raised.value.param) == (400, name)


@pytest.mark.parametrize(("text", "limit"), [("", 50), ("1", 1), ("200", MOST), ("007", 7)])
def test_so_many_a_page(text, limit):
    assert read_limit({"limit": text}) == limit


@pytest.mark.parametrize("text", ["0", "201", "-1", "+5", "5.0", "1e2", "ten", "٣", " 5", "9" * 150])
def test_no_other_number_a_page(text):
    with pytest.raises(ApiError) as raised:
        read_limit({"limit": text})
    assert raised.value.param == "limit"


@pytest.mark.parametrize(("text", "step"), [("", "day"), ("day", "day"), ("hour", "hour"), ("minute", "minute")])
def test_steps(text, step):
    assert read_step({"step": text}) == step


def test_no_other_step():
    with pytest.raises(ApiError, match="'week' is not one of: day, hour, minute"):
        read_step({"step": "week"})


@given(
    st.text(st.characters(codec="ascii", exclude_characters="_\0"), max_size=40),
    st.from_regex(r"[0-9a-f]{1,32}", fullmatch=True),
)
def test_a_cursor_that_a_page_gave_is_read_again(moment, trace):
    assert read_cursor({"after": str(Cursor(moment, trace))}) == Cursor(moment, trace)


@pytest.mark.parametrize("text", ["x", "2026-11-15", "2026_", "x" * 201, "a\0_b"])
def test_a_cursor_that_none_gave_is_refused(text):
    with pytest.raises(ApiError) as raised:
        read_cursor({"after": text})
    assert (raised.value.status, raised.value.param) == (400, "after")
    assert read_cursor({"after": ""}) is None


@given(st.dictionaries(st.sampled_from([*NAMES, "limit", "step", "after"]), st.text(max_size=210)))
def test_any_query_is_read_or_refused(params):
    for read in (read_filter, read_cursor, read_limit, read_step):
        try:
            read(params)
        except ApiError as refusal:
            assert refusal.status == 400
            assert refusal.param in params
