from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.fusion.conclusion import conclusion
from odar.fusion.equivalence import group


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("She has 9 eggs left.\nSo she makes 9 * $2 = $18 every day.", "$18"),
        ("In all, that is 1,250 sheets of paper.", "1,250"),
        ("The price rose by 12.5% over the year.", "12.5%"),
        ("It gets colder, down to -4 degrees outside.", "-4"),
        ("First 3 apples. Then there are none left.", None),
        ("Version v2 of the H2O paper is out", None),
        ("18", None),
        ("about 18 eggs", None),
        ("", None),
    ],
)
def test_the_number_that_prose_comes_to(text, number):
    assert conclusion(text) == number


def test_prose_joins_the_number_it_comes_to():
    prose = "Janet sells 9 eggs at $2 each, so she makes $18 a day."
    assert group(["18", prose, "$18", "20"]) == [0, 0, 0, 1]


def test_among_prose_alone_no_number_is_read_into_it():
    first, second = "Einstein was born in Ulm in 1879.", "Einstein was born in Berlin in 1879."
    assert group([first, second]) == [0, 1]
    assert group([first, second, "Ulm"]) == [0, 1, 2]


def test_an_answer_that_is_no_prose_stays_what_it_is():
    assert group(["4", "B", "yes", "x = 4", "1, 2 and 4"]) == [0, 1, 2, 0, 3]


@given(
    st.lists(st.one_of(st.text(max_size=60), st.integers().map(str), st.sampled_from(["so it is 7 in all", "7"])))
)
def test_grouping_is_a_partition_that_no_order_changes(answers):
    forth, back = group(answers), group(answers[::-1])[::-1]
    assert [[a == b for b in forth] for a in forth] == [[a == b for b in back] for a in back]


def test_a_long_text_is_read_in_no_time():
    started = time.perf_counter()
    conclusion("1,1," * 250_000)
    conclusion("a. " * 250_000)
    assert time.perf_counter() - started < 1
