"""Hand-checked cases of the graders that compare short answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.lab.graders.mathematics import number_match, parse_number
from odar.lab.graders.text import bigbench, chosen_letter, exact_match, f1, rouge_l, yes_no_match

OPTIONS = ["a cat", "a dog", "a cat and a dog", "42"]


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("18", "$18.00", 1),
        ("18", "She earns 9 * 2 = $18", 1),
        ("0.5", "1/2", 1),
        ("1500", "1.5e3", 1),
        ("70000", "\\$70,000", 1),
        ("18", "18.5", 0),
        ("18", "18 or 19", 0),
        ("18", "", 0),
        ("18", "none", 0),
        ("3", "1/0", 0),
        ("20", "20 minutes in 3 steps", 0),  # the last number counts, as in the official script
    ],
)
def test_numeric(gold, answer, right):
    assert number_match(gold, answer) == right


@given(st.text(max_size=300))
def test_number_never_raises(text):
    parse_number(text)


def test_within_a_tolerance():
    assert number_match("1.2", "about 1.24", 0.05) == 1.0
    assert number_match("1.2", "1.26", 0.05) == 0.0
    assert number_match("1.2", "one", 0.05) == 0.0


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("B. a dog", "B"),
        ("(B) because it barks", "B"),
        ("The correct choice is B because it barks, unlike a cat", "B"),
        ("a dog", "B"),
        ("A dog.", "B"),
        ("It is a cat and a dog, I think", "C"),  # the longer option holds the two shorter ones
        ("42", "D"),
        ("(A) or (B)", None),
        ("B or C: option C, or option B", None),
        ("A. No, wait: option B", None),
        ("E", None),  # there is no such option
        ("I am not sure", None),
        ("", None),
    ],
)
def test_which_option_an_answer_names(answer, letter):
    assert chosen_letter(answer, OPTIONS) == letter


def test_options_that_contain_letters():
    assert chosen_letter("(a) 2, (b) 5", ["(a) 1, (b) 5", "(a) 2, (b) 5"]) == "B"
    assert chosen_letter("$5", ["$5", "5 kg"]) == "A"
    assert chosen_letter("DdGg", ["DDgg", "DdGg"]) == "B"  # genes: case matters where it tells options apart
    assert chosen_letter("A", ["B", "A"]) == "A"


@given(st.text(max_size=200), st.lists(st.text(max_size=20), max_size=10))
def test_chosen_never_raises(answer, options):
    assert chosen_letter(answer, options) in (None, *"ABCDEFGHIJ"[: len(options)])


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        (True, "**yes**, because", 1),
        (False, "No, Albany is smaller.", 1),
        (True, "It is true", 1),
        (True, "No. Yes, it will.", 0),  # the beginning counts
        (True, "yes and no", 0),
        (True, "", 0),
        (True, "nobody knows", 0),
        (False, "There is no evidence, so no", 1),
    ],
)
def test_verdict(gold, answer, right):
    assert yes_no_match(gold, answer) == right


def test_exact_match_normalises_like_squad():
    assert exact_match(["The Eiffel Tower"], "eiffel tower!") == 1.0
    assert exact_match(["U.S.A."], "usa") == 1.0
    assert exact_match(["Paris"], "Paris, France") == 0.0
    assert exact_match(["Paris", "Paris, France"], "paris france") == 1.0
    assert exact_match(["another"], "nother") == 0.0  # an article is a whole word


def test_f1_by_hand():
    assert f1(["Barack Hussein Obama"], "Barack Obama") == pytest.approx(0.8)  # p = 1, r = 2/3
    assert f1(["b b c"], "b c c") == pytest.approx(2 / 3)  # counted as often as they occur
    assert f1(["yes"], "yes it is") == 0.0  # a verdict matches as a whole
    assert f1([""], "the") == 1.0
    assert f1(["Paris"], "") == 0.0
    assert f1(["London", "Paris"], "Paris") == 1.0


@given(st.text(max_size=60), st.text(max_size=60))
def test_f1_is_symmetric_bounded_and_no_less_than_exact_match(a, b):
    assert 0.0 <= f1([a], b) <= 1.0
    assert f1([a], b) == pytest.approx(f1([b], a))
    assert f1([a], b) >= exact_match([a], b)


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("(B)", "B", 1),
        ("(B)", "(b)", 1),
        ("(B)", "(B) the red ball", 1),
        ("(B)", "(A)", 0),
        ("(B)", "banana", 0),
        ("B", "(B)", 1),
        ("90.0", "90", 1),
        ("90.0", "$90$", 1),
        ("1199", "\\boxed{1199}", 1),
        ("no, no, yes", "no,no,yes", 1),
        ("no, no, yes", "no, yes, no", 0),
        ("] ] >", "] ] >", 1),
        ("True", "true.", 1),
        ("dont", "don't", 1),
        ("What?", "what?", 1),
        ("valid", "invalid", 0),
        ("nan", "NaN", 1),  # the same word; two things that are not numbers are otherwise different
        ("Yes", "Yes\nbecause it is", 1),
        ("artillery bainite", "The final answer is: artillery bainite", 1),
    ],
)
def test_bigbench_rules(gold, answer, right):
    assert bigbench(gold, answer) == right


@given(st.text(max_size=200), st.text(max_size=40))
def test_bigbench_never_raises(answer, gold):
    assert bigbench(gold, answer) in (0.0, 1.0)


@pytest.mark.parametrize(
    ("golds", "answer", "score"),
    [
        (["the cat sat on the mat"], "The cat sat on a mat.", 1.0),  # articles do not count
        (["one two three four"], "four three two one", 0.25),  # a subsequence keeps its order
        (["one two", "three four five"], "three four", 0.8),  # the nearest reference counts
        (["one"], "", 0.0),
        ([""], "", 1.0),
    ],
)
def test_rouge_l_is_the_f_measure_of_the_longest_common_subsequence(golds, answer, score):
    assert rouge_l(golds, answer) == pytest.approx(score)
