from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.fusion.quantity import Quantity, parse_quantity

READ = [
    ("0", 0, ""),
    ("1,000", 1000, ""),
    ("1,234,567.25", Fraction("1234567.25"), ""),
    (".5", Fraction(1, 2), ""),
    ("+7", 7, ""),
    ("- 7", -7, ""),
    ("1.5e3", 1500, ""),
    ("2e-2", Fraction(1, 50), ""),
    ("10^3", 1000, ""),
    ("10**3", 1000, ""),
    ("10^{-2}", Fraction(1, 100), ""),
    ("3 × 10^4", 30_000, ""),
    ("3 x 10^4", 30_000, ""),
    ("0^0", 1, ""),
    ("3/4", Fraction(3, 4), ""),
    ("-3 / 4", Fraction(-3, 4), ""),
    ("2 1/2", Fraction(5, 2), ""),
    ("-2 1/2", Fraction(-5, 2), ""),
    ("1.5/2", Fraction(3, 4), ""),
    (r"\frac{3}{4}", Fraction(3, 4), ""),
    (r"2\frac{1}{2}", Fraction(5, 2), ""),
    (r"\frac{-3}{4}", Fraction(-3, 4), ""),
    (r"-\frac{3}{4}", Fraction(-3, 4), ""),
    ("$5", 5, "usd"),
    ("-$5", -5, "usd"),
    ("$-5", -5, "usd"),
    ("us$ 5", 5, "usd"),
    ("usd 5", 5, "usd"),
    ("5 usd", 5, "usd"),
    ("5 bucks", 5, "usd"),
    ("€1,000.50", Fraction("1000.5"), "eur"),
    ("£3", 3, "gbp"),
    ("3 pounds", 3, "lb"),
    ("3 pounds sterling", 3, "gbp"),
    ("50%", 50, "%"),
    ("50 per cent", 50, "%"),
    ("5km", 5, "km"),
    ("5 kilometres", 5, "km"),
    ("90°", 90, "degree"),
    ("12 apples", 12, "apples"),
    ("3 km/h", 3, "km/h"),
    ("7 red apples", 7, "red apples"),
    ("5 m^2", 5, "m^2"),
    ("5 cm^3", 5, "cm^3"),
]
NONE = [
    *(
        "",
        " ",
        "x",
        "five",
        "1/0",
        r"\frac{1}{0}",
        "0^-1",
        "4x",
        "4x^2",
        "3y/2",
        "2ab",
        "1 2 3",
        "$5 dollars",
        "5 red big apples",
    ),
    *("--5", "12:30", "1,00", "3.4.5", "e3", "²", "9" * 121, "$", "%"),
]


@pytest.mark.parametrize(("text", "value", "unit"), READ, ids=[text for text, _, _ in READ])
def test_numbers_as_people_write_them(text, value, unit):
    assert parse_quantity(text) == Quantity(Fraction(value), unit)


@pytest.mark.parametrize("text", NONE, ids=[text[:20] or "empty" for text in NONE])
def test_what_is_no_number_is_none(text):
    assert parse_quantity(text) is None


@given(st.integers(0, 10**12), st.integers(0, 999_999))
def test_a_decimal_is_exact(whole, part):
    text = f"{whole}.{part:06}"
    assert parse_quantity(text).value == Fraction(whole) + Fraction(part, 10**6)
    assert parse_quantity(f"{whole:,}.{part:06}") == parse_quantity(text)
    assert parse_quantity(f"-{text}").value == -parse_quantity(text).value


@given(st.integers(1, 9999), st.integers(-30, 30))
def test_powers_of_ten_are_written_in_three_ways(factor, exponent):
    value = Fraction(factor) * Fraction(10) ** exponent
    for text in (f"{factor}e{exponent}", f"{factor}*10^{exponent}", f"{factor} × 10^{{{exponent}}}"):
        assert parse_quantity(text).value == value


@given(st.integers(0, 50), st.integers(1, 99), st.integers(1, 99))
def test_mixed_numbers_are_sums(whole, over, under):
    value = whole + Fraction(over, under)
    assert parse_quantity(f"{whole} {over}/{under}").value == value
    assert parse_quantity(rf"{whole}\frac{{{over}}}{{{under}}}").value == value
    assert parse_quantity(f"-{whole} {over}/{under}").value == -value


@given(st.integers(0, 10**6), st.sampled_from([unit for _, _, unit in READ if unit and " " not in unit]))
def test_a_unit_that_was_read_is_read_again_as_itself(value, unit):
    first = parse_quantity(f"{value} {unit}")
    assert first == Quantity(Fraction(value), unit)


@given(st.text(max_size=130))
def test_any_text_is_a_quantity_or_none(text):
    found = parse_quantity(text.casefold())
    assert found is None or isinstance(found.value, Fraction)
