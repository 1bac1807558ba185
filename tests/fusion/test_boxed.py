"""Boxes, in solutions and in prose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.fusion.boxed import last_boxed


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("\\boxed{1} then \\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\fbox{7}", "7"),
        ("\\boxed {8}", "8"),
        ("\\boxed{ 9\n}", "9"),
        ("\\boxed{4} and cut off \\boxed{5", "4"),
        ("\\boxed{\\{1,2\\}}", "\\{1,2\\}"),
        ("\\boxed{\\{}", "\\{"),
        ("\\boxed{outer \\boxed{inner}}", "inner"),
        ("\\boxed{}", ""),
        ("boxed{3}", None),
        ("\\boxes{3}", None),
        ("", None),
    ],
)
def test_boxes(text, content):
    assert last_boxed(text) == content


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("$\\boxed 3$", "3"),
        ("\\boxed7.", "7"),
        ("\\boxed{1}, no: \\boxed 2", "2"),
        ("\\boxed 1, no: \\boxed{2}", "2"),
    ],
)
def test_boxes_without_braces_where_they_are_expected(text, content):
    assert last_boxed(text, bare=True) == content


@pytest.mark.parametrize("text", ["use \\boxed notation", "put it into `\\boxed`", "\\boxed"])
def test_prose_about_boxes_is_no_box(text):
    assert last_boxed(text) is None
    assert last_boxed(f"\\boxed{{4}}. I was told to {text}") == "4"


@given(st.text(alphabet="\\boxed{}1 $", max_size=100), st.booleans())
def test_any_text(text, bare):
    found = last_boxed(text, bare=bare)
    assert found is None or found in text


@given(st.text(alphabet="ab{}\\ ", max_size=20))
def test_what_is_no_box_changes_nothing(before):
    assert last_boxed(f"{before} \\boxed{{x{{y}}}}") == "x{y}"
