"""Reading and checking a single value of a setting; test_config.py tests whole files."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.config import coerce, key_name, parse_value, short_repr
from odar.errors import SettingsError
from odar.settings import setting

ANY = setting("anything")
PATH = ("fast", "x")


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4))
def test_a_key_name_is_a_valid_toml_key(path):
    if any(0xD800 <= ord(c) <= 0xDFFF or c == "\x7f" for part in path for c in part):
        return  # no TOML file can hold these at all
    node = tomllib.loads(f"{key_name(tuple(path))} = 1")
    for part in path:
        node = node[part]
    assert node == 1


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("3", int, 3),
        ("0.5", float, 0.5),
        ("inf", float, math.inf),
        ("true", bool, True),
        ("3", str, "3"),  # a model name
        ("a,b,", tuple[str, ...], ["a", "b"]),
        ('["a,b"]', tuple[str, ...], ["a,b"]),
        ("plain words", int, "plain words"),  # rejected later, by its type
        ("[" * 5000, int, "[" * 5000),
    ],
)
def test_a_variable_is_parsed_as_toml(text, kind, value):
    assert parse_value(text, kind) == value


@pytest.mark.parametrize(
    ("value", "kind", "good"),
    [
        (1, float, 1.0),
        (True, bool, True),
        (["a"], tuple[str, ...], ("a",)),
        ("none", float | None, None),
        ("", str | None, None),
        (2, float | None, 2.0),
        ({"a": 1}, Mapping[str, float], {"a": 1.0}),
    ],
)
def test_a_value_is_converted_to_its_type(value, kind, good):
    found = coerce(value, kind, ANY, PATH, "odar.toml")
    assert found == good
    assert type(found) is type(good)


@pytest.mark.parametrize(
    ("value", "kind", "must"),
    [
        (True, int, "a whole number"),
        (2**63, int, "a whole number"),
        (1.0, int, "a whole number"),
        ("1", float, "a number"),
        (1, bool, "true or false"),
        (1, str, "a string"),
        (["a", 1], tuple[str, ...], "a list of strings"),
        ({"a": "x"}, Mapping[str, float], "a table"),
    ],
)
def test_a_wrong_type_names_key_value_and_origin(value, kind, must):
    with pytest.raises(SettingsError, match=rf"fast\.x = .* in odar\.toml must be {must}"):
        coerce(value, kind, ANY, PATH, "odar.toml")


@given(st.floats(allow_nan=True))
def test_a_value_out_of_bounds_names_the_nearest_valid_one(value):
    within = setting("", ge=0.0, le=2.0)
    if 0 <= value <= 2:
        assert coerce(value, float, within, PATH, "x") == value
    else:
        nearest = "" if math.isnan(value) else f"; the nearest valid value is {2 if value > 2 else 0}"
        with pytest.raises(SettingsError) as raised:
            coerce(value, float, within, PATH, "x")
        assert str(raised.value).endswith(f"must be at least 0 and at most 2{nearest}")


def test_an_open_bound_excludes_its_value():
    above = setting("", gt=0.0)
    assert coerce(0.1, float, above, PATH, "x") == 0.1
    with pytest.raises(SettingsError, match=r"fast\.x = 0\.0 in x must be above 0$"):
        coerce(0, float, above, PATH, "x")


@given(st.text(), st.sampled_from(["api_key", "password", "x-token"]))
def test_a_value_with_a_secret_name_is_hidden(value, name):
    assert short_repr(value, name) == "(hidden)"


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists))
def test_shown_values_are_short(value):
    assert len(short_repr(value)) <= 60
