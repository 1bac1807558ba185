from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.policy.equivalence import canonical_form, equivalent, group_answers
from odar.policy.quantities import parse_quantity

SAME = [
    ["1000", "1,000", "1000.0", "10^3", "10**3", "1e3", "+1000", "1000.", "$1000$", "1 000".replace(" ", "")],
    ["1/2", "0.5", ".5", "\\frac{1}{2}", "\\dfrac{1}{2}", "\\frac12", "$\\frac{1}{2}$", "x = 1/2", "2/4"],
    ["2 1/2", "2.5", "5/2"],
    ["-3/4", "-0.75", "-\\frac{3}{4}", "−0.75"],
    ["50%", "50 percent", "50\\%", "50.0 %"],
    ["$5", "5 dollars", "$5.00", "USD 5", "\\$5"],
    ["5 km", "5 kilometers", "5km", "5.0 kilometres"],
    ["6.02 × 10^23", "6.02*10^{23}", "602e21"],
    ["(B)", "B.", "b", "B)", "Option B", "(b) the second one"],
    ["Yes", "yes.", "Yes, it is.", "YES!"],
    ["March 5, 2024", "5 March 2024", "2024-03-05", "Mar 5 2024", "5th of March 2024"],
    ["[1, 2, 3]", "1, 2, 3", "(1, 2, 3)", "1, 2 and 3"],
    ["{1, 2}", "{2, 1}", "\\{2, 1\\}"],
    ["Paris", "paris.", " **Paris** ", "The Paris"],
    ["\\sqrt{2}", "\\sqrt { 2 }", "$\\sqrt{2}$"],
    ["90^\\circ", "90°", "90 degrees"],
    ["x^2+1", "x^2 + 1"],
    ["ﬁve", "five"],
]
DIFFERENT = [
    ["50%", "1/2"],
    ["5 km", "5 m", "5 kg"],
    ["A", "B", "a cat", "Yes", "No", "True"],
    ["1, 2", "2, 1", "{1, 2}"],
    ["1000", "10000", "1,000,000", "-1000"],
    ["Paris", "Lyon", "Paris and Lyon"],
    ["March 5, 2024", "May 3, 2024", "2024-05-04"],
    ["", "0", "none"],
    ["4", "4x", "4x^2", "4x/3", "four"],
    ["f(x)", "g(x)"],
]


@pytest.mark.parametrize("answers", SAME, ids=lambda a: a[0])
def test_equal_answers_are_one_group(answers):
    assert set(group_answers(answers)) == {0}


@pytest.mark.parametrize("answers", DIFFERENT, ids=lambda a: a[0] or "empty")
def test_different_answers_are_kept_apart(answers):
    assert len(set(group_answers(answers))) == len(answers)


def test_a_bare_number_joins_the_only_unit_present():
    assert group_answers(["42", "42 km", "42"]) == [0, 0, 0]
    assert group_answers(["5", "5 kg", "5 g", "5"]) == [0, 1, 2, 0]


answers = st.one_of(
    st.text(max_size=40),
    st.from_regex(r"[-+]?\$?\d{1,4}(,\d{3})?(\.\d+)?( ?(km|%|dollars))?", fullmatch=True),
    st.from_regex(r"\(?[A-Ja-j]\)?\.?", fullmatch=True),
    st.text("\\frac{}12^_$()[]|, ", max_size=30),
    st.sampled_from([answer for row in SAME + DIFFERENT for answer in row]),
)


@given(answers)
def test_comparison_never_raises_and_is_reflexive(answer):
    assert canonical_form(answer) == canonical_form(answer)
    assert equivalent(answer, answer)
    assert equivalent(answer, f"  {answer}  ")


@given(st.lists(answers, max_size=6), st.data())
def test_groups_do_not_depend_on_the_order(items, data):
    order = data.draw(st.permutations(range(len(items))))
    numbers, moved = group_answers(items), group_answers([items[i] for i in order])
    for i in range(len(order)):
        for j in range(len(order)):
            assert (moved[i] == moved[j]) == (numbers[order[i]] == numbers[order[j]])


@given(st.fractions(max_denominator=10_000))
def test_every_fraction_is_read_exactly(value):
    assert parse_quantity(f"{value.numerator}/{value.denominator}")[0] == value
    if value >= 0:
        assert canonical_form(f"\\frac{{{value.numerator}}}{{{value.denominator}}}") == canonical_form(str(value))


@pytest.mark.parametrize("piece", ["1,", "(", "a, ", "\\frac{1}", "9", "$", " and ", "^"])
def test_long_input_is_handled(piece):
    canonical_form(piece * (200_000 // len(piece)))
    canonical_form(piece * (1_900 // len(piece)))


@pytest.mark.parametrize("opening", ["[", "(", "{", "\\{", "[1,"])
@pytest.mark.parametrize("depth", [7, 8, 9, 50, 400, 900])
def test_nested_lists_of_any_depth_are_compared(opening, depth):
    closing = {"(": ")", "{": "}", "\\{": "\\}"}.get(opening, "]")
    text = opening * depth + "1, 2" + closing * depth
    assert canonical_form(text) == canonical_form(f" {text} ")
    assert canonical_form(text) != canonical_form(text.replace("2", "3"))


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
def test_common_notations_of_numbers_are_parsed(text, value, unit):
    assert parse_quantity(text) == (Fraction(value), unit)


@pytest.mark.parametrize("text", NONE, ids=[text[:20] or "empty" for text in NONE])
def test_text_that_is_not_a_number_is_none(text):
    assert parse_quantity(text) is None


@given(st.integers(0, 10**12), st.integers(0, 999_999))
def test_a_decimal_is_exact(whole, part):
    text = f"{whole}.{part:06}"
    assert parse_quantity(text)[0] == Fraction(whole) + Fraction(part, 10**6)
    assert parse_quantity(f"{whole:,}.{part:06}") == parse_quantity(text)
    assert parse_quantity(f"-{text}")[0] == -parse_quantity(text)[0]


@given(st.integers(1, 9999), st.integers(-30, 30))
def test_powers_of_ten_are_written_in_three_ways(factor, exponent):
    value = Fraction(factor) * Fraction(10) ** exponent
    for text in (f"{factor}e{exponent}", f"{factor}*10^{exponent}", f"{factor} × 10^{{{exponent}}}"):
        assert parse_quantity(text)[0] == value


@given(st.integers(0, 50), st.integers(1, 99), st.integers(1, 99))
def test_mixed_numbers_are_sums(whole, over, under):
    value = whole + Fraction(over, under)
    assert parse_quantity(f"{whole} {over}/{under}")[0] == value
    assert parse_quantity(rf"{whole}\frac{{{over}}}{{{under}}}")[0] == value
    assert parse_quantity(f"-{whole} {over}/{under}")[0] == -value


@given(st.text(max_size=130))
def test_any_text_is_a_quantity_or_none(text):
    found = parse_quantity(text.casefold())
    assert found is None or isinstance(found[0], Fraction)
