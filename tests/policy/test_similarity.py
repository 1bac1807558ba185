"""Free text: which answers count as free text, and how similar two of them are."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.policy.fusion import Fusion
from odar.policy.fusion_rules import RULES, Ballot
from odar.policy.similarity import (
    FLOOR,
    are_free_text,
    asks_for_choice,
    is_free_text,
    lexical_similarity,
    word_overlap,
)
from odar.types import Candidate, Energy, Step, Token

SEEDS = (
    "The seeds pass through your digestive system and nothing happens to you.",
    "Nothing happens: the seeds pass through your digestive system unharmed.",
    "A watermelon will grow in your stomach if you swallow the seeds.",
)
CODE = "def add(a, b):\n    # the sum\n    return a + b\n"


@pytest.mark.parametrize(
    ("answer", "form"),
    [
        ("42", None),
        ("(B)", None),
        ("(B) because the others contradict what the passage says", None),
        ("March 3, 2020", None),
        ("Paris", False),
        ("x^2 + 3x + 2 = 0 or y = 4 + z", False),
        ("red, green, and blue", False),
        ("", False),
        (SEEDS[0], True),
        (CODE, True),
        ('{"name": "Ada", "born": 1815}', True),
    ],
)
def test_the_form_of_an_answer(answer, form):
    assert is_free_text(answer) is form


def test_texts_that_should_have_stated_their_answer_are_not_free_text():
    unstated = [dataclasses.replace(spoken(text), stated=False) for text in SEEDS]
    assert Fusion().free_text_similarity(unstated) is None


def test_one_number_among_the_answers_makes_the_question_exact():
    assert are_free_text([True, True, True, False])
    assert not are_free_text([True, True, True, None])
    assert not are_free_text([True, False, False, True])
    assert not are_free_text([True])


def test_a_question_with_options_is_not_answered_in_free_text():
    assert asks_for_choice("Which?\n(A) one thing\n(B) another thing")
    assert not asks_for_choice("A. Turing was born where?")
    candidates = [spoken(text) for text in SEEDS]
    assert Fusion().free_text_similarity(candidates) is not None
    assert Fusion().free_text_similarity(candidates, "What happens?\nA. It grows\nB. Nothing") is None


def test_paraphrases_are_more_similar_than_contradictions():
    s = lexical_similarity(SEEDS)
    assert s[0, 1] > s[0, 2]
    assert s[0, 1] > s[1, 2]


def test_a_negation_counts_as_much_as_a_rare_word():
    affirmed, denied, rest = "You will die.", "You will not die.", "You will soon die."
    assert word_overlap(affirmed, denied) < word_overlap(affirmed, rest)


def test_code_is_compared_without_comments_and_layout():
    rewritten = "```python\ndef add(a, b):\n        return a + b   # another comment\n```"
    s = lexical_similarity(
        [CODE, rewritten, "def multiply(x):\n    return x * 2 * 2 * 2\n", "This function adds two numbers."]
    )
    assert s[0, 1] == 1.0
    assert s[0, 1] > s[0, 2]
    assert s[0, 3] == 0.0


def test_json_is_compared_field_by_field():
    one, other, third = (
        {"name": "Ada", "born": year, "city": city} for year, city in ((1815, "London"),) * 2 + ((1, "Rome"),)
    )
    s = lexical_similarity([json.dumps(one), json.dumps(other, indent=2), json.dumps(third)])
    assert s[0, 1] == 1.0
    assert s[0, 2] == pytest.approx(1 / 3)


texts = st.lists(
    st.one_of(st.text(max_size=60), st.sampled_from([*SEEDS, CODE, '{"a": 1, "b": "two"}', "Paris", "42"])),
    min_size=1,
    max_size=6,
)


@given(texts)
def test_similarities_are_symmetric_and_bounded_for_any_text(answers):
    s = lexical_similarity(answers)
    assert (s == s.T).all()
    assert (np.diag(s) == 1).all()
    assert ((s == 0) | (s >= FLOOR)).all()
    assert s.max() <= 1 + 1e-12


@given(texts.filter(lambda each: len(each) > 1), st.data())
def test_the_similarity_of_two_answers_does_not_depend_on_the_others(answers, data):
    subset = data.draw(st.lists(st.integers(0, len(answers) - 1), unique=True, min_size=1))
    assert (
        lexical_similarity(answers)[np.ix_(subset, subset)] == lexical_similarity([answers[i] for i in subset])
    ).all()


def ballots(beta: float, groups: list[int], energy: list[float], skills: list[float], s=None) -> Ballot:
    sure = -np.array(energy)
    return Ballot(-sure, np.array(groups), np.array(skills), beta, s, sure, np.exp(sure), sure)


rows = st.integers(2, 6).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 2), min_size=n, max_size=n),
        st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 2.0]), min_size=n, max_size=n),
        st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=n, max_size=n),
        st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.9]), min_size=n * n, max_size=n * n),
    )
)


@given(rows, st.sampled_from([0.0, 0.25, 1.0, np.inf]), st.sampled_from(["fep", "majority", "deepconf"]))
def test_exact_equivalence_is_a_special_case_of_similarity(row, beta, rule):
    groups, energy, skills, _ = row
    same = np.equal.outer(groups, groups).astype(float)
    exact, soft = (RULES[rule](ballots(beta, groups, energy, skills, s)) for s in (None, same))
    np.testing.assert_allclose(exact[0], soft[0], rtol=1e-12)
    best = [max(range(len(groups)), key=lambda i, k=keys: (round(k[0][i], 9), k[-1][i])) for keys in (exact, soft)]
    assert (groups[best[0]], energy[best[0]]) == (groups[best[1]], energy[best[1]])


def test_beta_0_takes_the_weighted_medoid_and_beta_infinity_the_argmin():
    s = np.array([[1.0, 0.8, 0.1], [0.8, 1.0, 0.6], [0.1, 0.6, 1.0]])
    energy, groups, ones = [1.0, 1.0, -3.0], [0, 1, 2], [1.0] * 3
    assert RULES["fep"](ballots(0.0, groups, energy, ones, s))[0].argmax() == 1
    assert RULES["fep"](ballots(0.0, groups, energy, [1.0, 1.0, 9.0], s))[0].argmax() == 2
    assert RULES["fep"](ballots(np.inf, groups, energy, ones, s))[0].argmax() == 2


def spoken(text: str, logprob: float | None = -0.1, step: Step = Step.SOLVE) -> Candidate:
    tokens = tuple(Token(f" {word}", logprob) for word in text.split())
    energy = None if logprob is None else Energy(-logprob, 0.0, -logprob, -logprob)
    return Candidate(step, "fast" if step is Step.ANSWER else "slow", "m", text, text, tokens, energy=energy)


def test_free_text_is_decided_by_similarity_and_the_reason_names_it():
    surest_alone = spoken(SEEDS[2], -0.01)
    verdict = Fusion(beta=0.0).choose([spoken(SEEDS[0]), surest_alone, spoken(SEEDS[1])])
    assert verdict.winner != 1
    assert "free text, compared by lexical similarity" in verdict.reason
    exact = Fusion(beta=0.0, similarity="none").choose([spoken(SEEDS[0]), surest_alone, spoken(SEEDS[1])])
    assert exact.winner == 1
    assert "free text" not in exact.reason


def test_without_log_probabilities_the_most_similar_slow_answer_wins():
    slow = [spoken(text, None) for text in (SEEDS[2], SEEDS[0], SEEDS[1])]
    verdict = Fusion(beta=0.25).choose([spoken(SEEDS[2], None, Step.ANSWER), *slow])
    assert verdict.rule == "agreement"
    assert verdict.winner in (2, 3)
    assert "the most similar to the others" in verdict.reason


def test_equal_answers_have_a_similarity_of_one():
    call = spoken(SEEDS[0])
    found = Fusion().free_text_similarity([call, spoken(SEEDS[2]), call])
    assert found[0, 2] == found[2, 0] == 1 > found[0, 1]
