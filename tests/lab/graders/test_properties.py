"""Invariances and monotonicity of the graders."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from odar.lab.graders.livebench import ground_truth_score
from odar.lab.graders.mathematics import number_match, parse_number
from odar.lab.graders.text import (
    LETTERS,
    bigbench,
    chosen_letter,
    exact_match,
    f1,
    find_grids,
    format_grid,
    grid_match,
    normalize,
    yes_no_match,
)
from odar.policy.answers import last_boxed

Form = Callable[[str], str]
words = st.text(string.ascii_lowercase, min_size=3, max_size=8)
numbers = st.one_of(st.integers(-(10**7), 10**7), st.decimals(-9999, 9999, allow_nan=False, places=2)).map(str)

# ── numbers ─────────────────────────────────────────────────────────────────────────────────────────────────

NUMBER_FORMS: dict[str, Form] = {
    "bold": "**{}**".format,
    "dollars": lambda text: f"{text} dollars",
    "a closing full stop": "{}.".format,
    "mathematics": "${}$".format,
    "code": "`{}`".format,
    "an equation": "x = {}".format,
    "a sentence": "First 7, then 12, so the total is {}.".format,
    "white space": "\n  {} \t".format,
    "a Unicode minus": lambda text: text.replace("-", "−"),
    "full-width digits": lambda text: text.translate({ord(d): 0xFF10 + i for i, d in enumerate(string.digits)}),
    "grouped": lambda text: f"{Decimal(text):,}",
}


@pytest.mark.parametrize("form", NUMBER_FORMS)
@given(value=numbers)
def test_the_notation_of_a_number_does_not_matter(form, value):
    shown = NUMBER_FORMS[form](value)
    assert parse_number(shown) == Fraction(value)
    assert number_match(value, shown) == 1.0
    assert number_match(str(Decimal(value) + 1), shown) == 0.0


@given(numbers, numbers, st.floats(0, 100), st.floats(0, 100))
def test_more_tolerance_never_loses_an_answer(gold, answer, first, second):
    less, more = sorted((first, second))
    assert number_match(gold, answer, less) <= number_match(gold, answer, more)
    assert number_match(gold, answer, less) == number_match(answer, gold, less)
    assert number_match(gold, answer) <= number_match(gold, answer, less)


# ── options ─────────────────────────────────────────────────────────────────────────────────────────────────

LETTER_FORMS: dict[str, Form] = {
    "bare": str,
    "small": str.lower,
    "brackets": "({})".format,
    "square brackets": "[{}]".format,
    "a full stop": "{}.".format,
    "bold": "**{}**".format,
    "LaTeX": "\\text{{{}}}".format,
    "a box": "$\\boxed{{{}}}$".format,
    "a word": "Option {}".format,
    "a sentence": "The answer is ({}).".format,
    "a reason": "{} because nothing else fits".format,
    "a dash": "{} – as it was".format,
}


@pytest.mark.parametrize("form", LETTER_FORMS)
@given(st.integers(2, 10), st.data())
def test_a_letter_is_a_choice_in_any_notation(form, count, data):
    options = [f"thing{i}" for i in range(count)]
    letter = LETTERS[data.draw(st.integers(0, count - 1))]
    shown = LETTER_FORMS[form](letter)
    assert chosen_letter(shown, options) == letter


@given(st.lists(words, min_size=2, max_size=8, unique=True), st.randoms(use_true_random=False))
def test_the_order_of_options_does_not_change_the_choice(options, rng):
    assume(not any(a != b and a in b for a in options for b in options))
    said = f"It must be {options[0]}, I think."
    shuffled = rng.sample(options, len(options))
    letter = chosen_letter(said, shuffled)
    assert letter is not None and shuffled[LETTERS.index(letter)] == options[0]


@given(st.booleans(), st.text(max_size=80))
def test_an_answer_is_never_both_yes_and_no(gold, answer):
    assert yes_no_match(gold, answer) + yes_no_match(not gold, answer) <= 1.0


@pytest.mark.parametrize("form", ["{}", "{}.", "**{}**", "{}, because it is", "({})", '"{}"', "I would say {}."])
@pytest.mark.parametrize(("word", "gold"), [("yes", True), ("No", False), ("TRUE", True), ("false", False)])
def test_a_verdict_is_found_in_any_notation(form, word, gold):
    assert yes_no_match(gold, form.format(word)) == 1.0
    assert yes_no_match(not gold, form.format(word)) == 0.0


# ── short answers ───────────────────────────────────────────────────────────────────────────────────────────

phrases = st.lists(words, min_size=1, max_size=6).map(" ".join)
PHRASE_FORMS: dict[str, Form] = {
    "capitals": str.upper,
    "an article": "the {}".format,
    "punctuation": "{}!?".format,
    "commas": lambda text: text.replace(" ", ", "),
    "white space": lambda text: "  " + text.replace(" ", " \n ") + "\t",
    "quotes": '"{}"'.format,
}


@pytest.mark.parametrize("form", PHRASE_FORMS)
@given(phrase=phrases)
def test_the_notation_of_a_phrase_does_not_matter(form, phrase):
    assume(not set(phrase.split()) & {"the", "yes", "noanswer"})
    shown = PHRASE_FORMS[form](phrase)
    assert exact_match([phrase], shown) == f1([phrase], shown) == 1.0
    assert normalize(shown) == normalize(normalize(shown)) == normalize(phrase)


@given(phrases, st.integers(1, 5))
def test_additional_words_lower_f1(gold, count):
    assume(not set(gold.split()) & {"yes", "noanswer"})
    longer = f"{gold} {' '.join(['zzzzzzzzzz'] * count)}"
    length = len(normalize(gold).split())
    if length:
        assert f1([gold], longer) == pytest.approx(2 * length / (2 * length + count))


BIGBENCH_FORMS: dict[str, Form] = {
    "a preamble": "So the answer is {}.".format,
    "bold": "**{}**".format,
    "quotes": "'{}'".format,
    "a box": "\\boxed{{{}}}".format,
    "text in a box": "\\boxed{{\\text{{{}}}}}".format,
    "capitals": str.upper,
    "more lines": "{}\nI am sure of it.".format,
    "brackets": "[{}]".format,
    "a question": "{}?".format,
}


@pytest.mark.parametrize("form", BIGBENCH_FORMS)
@given(gold=phrases, other=phrases)
def test_bigbench_ignores_the_notation_of_an_answer(form, gold, other):
    assert bigbench(gold, BIGBENCH_FORMS[form](gold)) == 1.0
    if other != gold:
        assert bigbench(gold, BIGBENCH_FORMS[form](other)) == 0.0


# ── grids and boxes ─────────────────────────────────────────────────────────────────────────────────────────

rectangles = st.integers(2, 5).flatmap(
    lambda width: st.lists(st.lists(st.integers(0, 9), min_size=width, max_size=width), min_size=2, max_size=5)
)
GRID_FORMS: dict[str, Callable[[list[list[int]]], str]] = {
    "JSON": json.dumps,
    "JSON by rows": lambda grid: "[" + ",\n ".join(map(json.dumps, grid)) + "]",
    "rows": format_grid,
    "digits": lambda grid: "\n".join("".join(map(str, row)) for row in grid),
    "commas": lambda grid: "\n".join(",".join(map(str, row)) for row in grid),
    "lists": lambda grid: "\n".join(map(json.dumps, grid)),
    "fenced": lambda grid: f"```\n{format_grid(grid)}\n```",
}


@pytest.mark.parametrize("form", GRID_FORMS)
@given(grid=rectangles, row=st.integers(0, 4), column=st.integers(0, 4))
def test_a_grid_is_read_in_any_notation_and_every_cell_counts(form, grid, row, column):
    shown = GRID_FORMS[form](grid)
    assert find_grids(f"I see:\n\n{shown}\n\nThat is all.")[-1] == grid
    other = [list(each) for each in grid]
    other[row % len(grid)][column % len(grid[0])] += 1
    assert grid_match(grid, shown) == 1.0
    assert grid_match(other, shown) == 0.0


balanced = st.recursive(words, lambda inner: st.tuples(words, inner).map(lambda pair: f"{pair[0]}{{{pair[1]}}}"))


@given(balanced, st.text("ab{}\\ ", max_size=10))
def test_the_last_complete_box_is_read(content, before):
    assert last_boxed(f"{before} so \\boxed{{{content}}} it is") == content
    assert last_boxed(f"\\boxed{{old}} then \\boxed{{{content}}}") == content
    assert last_boxed(f"\\boxed{{{content}}} and cut off \\boxed{{{content}") == content


# ── LiveBench ───────────────────────────────────────────────────────────────────────────────────────────────

TASKS = (
    *("typos", "plot_unscrambling", "connections", "web_of_lies_v2", "zebra_puzzle", "spatial", "cta"),
    *("olympiad", "tablejoin", "tablereformat", "a_task_of_tomorrow"),
)


@pytest.mark.parametrize("task", TASKS)
@given(gold=st.text(max_size=40), response=st.text(max_size=120))
def test_any_response_to_any_question_has_a_score(task, gold, response):
    assert 0.0 <= ground_truth_score(task, gold, response, "") <= 1.0


@given(st.permutations(list("abcdefgh")), st.permutations(list("abcdefgh")))
def test_groups_of_four_are_compared_as_sets(first, second):
    gold, told = ", ".join(first), ", ".join(second)
    wanted = {frozenset(first[:4]), frozenset(first[4:])}
    found = {frozenset(second[:4]), frozenset(second[4:])}
    assert ground_truth_score("connections", gold, f"<solution>{told}</solution>", "") == len(wanted & found) / 2
