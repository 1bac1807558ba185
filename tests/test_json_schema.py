"""Schemas of clients: what can be used, what a value violates, and checks that would take too long."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema_rs import is_valid

from odar.response_format import (
    MAX_CHARACTERS,
    MAX_PATTERNS,
    SchemaChecker,
    _StepCounter,
    schema_fault,
)

TREE = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "left": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        "children": {"type": "array", "items": {"$ref": "#"}},
    },
    "required": ["name"],
}


def schema_violation(value: Any, schema: dict[str, Any]) -> str:
    """Check one value."""
    return SchemaChecker().violation(value, schema)


def chain(keyword: str, length: int) -> dict[str, Any]:
    """Definitions that each refer twice to the one before."""
    definitions: dict[str, Any] = {"d0": {"type": "string"}}
    for number in range(1, length):
        definitions[f"d{number}"] = {keyword: [{"$ref": f"#/$defs/d{number - 1}"}] * 2}
    return {"$ref": f"#/$defs/d{length - 1}", "$defs": definitions}


@pytest.mark.parametrize("schema", [{"type": "thing"}, {"$ref": "http://127.0.0.1:9/x.json"}, {"pattern": "("}])
def test_an_unusable_schema_is_detected(schema):
    assert schema_fault(schema)
    assert schema_violation({"a": 1}, schema) == ""


def test_size_and_patterns_of_a_schema_are_limited():
    assert "characters" in schema_fault({"description": "x" * MAX_CHARACTERS})
    many = {"properties": {f"p{i}": {"pattern": f"a{i}"} for i in range(MAX_PATTERNS)}}
    assert schema_fault(many) == ""
    assert "patterns" in schema_fault({**many, "patternProperties": {"^b": {}}})


def test_a_pattern_that_is_large_when_compiled_is_refused():
    """60 of these took a second and a half, in which nothing else ran."""
    assert schema_fault({"pattern": "((a{0,300}){0,300})"})
    assert schema_fault({"pattern": r"^[\w.+-]+@[\w-]+(?:\.\w{2,})+$"}) == ""


def test_a_catastrophic_pattern_does_not_hang():
    assert schema_violation("a" * 5000 + "!", {"type": "string", "pattern": "^(a+)+$"})


@pytest.mark.parametrize("keyword", ["anyOf", "allOf", "oneOf"])
def test_a_check_with_exponentially_many_steps_is_not_made(keyword):
    """The validator itself would take longer than a test may: 2⁶⁰ steps."""
    assert schema_fault(chain(keyword, 60)) == ""
    assert schema_violation({"a": 1}, chain(keyword, 60)) == ""


def test_exponential_steps_along_the_depth_of_a_value_are_counted():
    schema = {"properties": {"c": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}}
    value: dict[str, Any] = {}
    for _ in range(50):
        value = {"c": value}
    steps = _StepCounter(schema).count(value)
    assert steps is not None
    assert steps > 2**50
    assert schema_violation(value, schema) == ""


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$id": "http://a/", "$ref": "#/$defs/b"}}},
        {"unevaluatedProperties": False},
        {"properties": {"a": {"$dynamicRef": "#a"}}},
        {"prefixItems": [{"type": "string"}] * 1000},
    ],
)
def test_steps_that_cannot_be_bounded_are_not_counted(schema):
    value = [1] * 2000 if "prefixItems" in schema else {"a": 1}
    assert _StepCounter(schema).count(value) is None


def test_an_ordinary_recursive_schema_is_checked():
    value = {"name": "a", "left": {"name": "b", "left": None}, "children": [{"name": "c"}, {"name": "d"}]}
    assert schema_violation(value, TREE) == ""
    value["children"][0]["name"] = 3
    assert schema_violation(value, TREE) == '3 is not of type "string"'


def test_a_check_of_many_steps_gives_no_reason():
    schema = {"items": {"enum": [f"e{i}" for i in range(20)]}}
    assert schema_violation(["e1"] * 200, schema) == ""
    assert schema_violation([*["e1"] * 200, "f"], schema) == "it violates the schema"


SCHEMAS = st.recursive(
    st.sampled_from([True, False, {"type": "string"}, {"enum": [1, "a"]}, {"pattern": "a"}, {"$ref": "#/$defs/d"}]),
    lambda inner: st.one_of(
        st.builds(
            lambda k, parts: {k: parts}, st.sampled_from(["allOf", "anyOf", "oneOf"]), st.lists(inner, min_size=1)
        ),
        st.builds(lambda part: {"not": part}, inner),
        st.builds(lambda part: {"items": part}, inner),
        st.builds(lambda a, rest: {"properties": {"a": a}, "additionalProperties": rest}, inner, inner),
    ),
    max_leaves=12,
)
VALUES = st.recursive(
    st.sampled_from([1, "a", "b", None]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=12,
)


@given(SCHEMAS, SCHEMAS, VALUES)
def test_values_are_judged_as_the_validator_does(schema, definition, value):
    """The definition does not refer to itself, so every check is short."""
    if "$ref" in json.dumps(definition) or not isinstance(schema, dict):
        return
    whole = {**schema, "$defs": {"d": definition}}
    assert bool(schema_violation(value, whole)) == (not is_valid(whole, value))


def test_the_values_of_one_answer_share_the_limits():
    """400 tool calls with a schema of 4,000 parts each took ten seconds."""
    wide = {"allOf": [{"type": "object"} for _ in range(4000)]}
    checker = SchemaChecker()
    assert [bool(checker.violation([], wide)) for _ in range(4)] == [True, True, False, False]


def test_compiling_schemas_counts_too():
    checker = SchemaChecker()
    schemas = [{"type": "string", "description": f"{i}" + "x" * 100_000} for i in range(6)]
    assert [bool(checker.violation(1, schema)) for schema in schemas] == [True] * 3 + [False] * 3
