"""Terms of university courses: what they add to f15-f17 in short questions, and where they do not count."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odar.difficulty.estimator import LearnedEstimator
from odar.difficulty.features import FEATURES, FIELDS, phi, university_weights
from odar.difficulty.university import MAX_WORDS, asks_for_a_fact, university_tfidf
from odar.types import Query

HERE = Path(__file__).parent
WEIGHTS = {"nilpotent": (0, 10.0), "mutex": (1, 20.0), "modal": (2, 30.0)}


def added(text: str, **counts: int) -> tuple[float, float, float]:
    return university_tfidf(counts or {"nilpotent": 1}, text, WEIGHTS)


def test_each_term_counts_in_its_vocabulary() -> None:
    text = "is it nilpotent, mutex or modal"
    sums = added(text, nilpotent=1, mutex=1, modal=1)
    assert [value / sums[0] for value in sums] == pytest.approx([1, 2, 3])
    assert added("two or three other terms", other=1) == (0, 0, 0)


def test_the_shorter_the_question_the_more_a_term_counts() -> None:
    by_length = [added(" ".join(["so"] * n))[0] for n in range(1, 40)]
    assert by_length == sorted(by_length, reverse=True)
    assert by_length[11] == 10.0, "twelve words"
    assert len(set(by_length[:8])) == 1, "not more than in eight words"
    assert all(value > 0 for value in by_length[: MAX_WORDS - 1]) and not any(by_length[MAX_WORDS - 1 :])


def test_a_term_that_is_repeated_counts_less_than_twice() -> None:
    once, twice = (added("a nilpotent b nilpotent c", nilpotent=n)[0] for n in (1, 2))
    assert once < twice < 2 * once


@pytest.mark.parametrize(
    "text",
    [
        "Who proved it for nilpotent groups?", "In which year was the mutex invented?", "What does NMR stand for?",
        "Was Emmy Noether a mathematician?", "How do you pronounce epsilon?", "What is a monad?",
        "What does ergodic mean?", "Is a compiler a program?", "Is statics part of mechanics?",
        "Where is the Large Hadron Collider?", "What is the symbol of the photon?", "My cat is called Lebesgue.",
        "After whom is the Gaussian distribution named?", "Is a neutrino a particle or a planet?",
        "What is the name of the mascot of Linux?", "Which physicist explained Brownian motion?",
    ],
)  # fmt: skip
def test_questions_for_a_fact(text: str) -> None:
    assert asks_for_a_fact(text) and added(text) == (0, 0, 0)


@pytest.mark.parametrize(
    "text",
    [
        "Is every nilpotent group solvable?", "When is a nilpotent matrix diagonalizable?",
        "What is the Hausdorff dimension of the Cantor set?", "Use the Born approximation for a nilpotent operator.",
        "Does the limit exist, and what is its value?", "Which level of scrutiny applies here?",
        "Where does the proof use compactness?", "Is a martingale bounded in L1 always uniformly integrable?",
        "Why does a competitive inhibitor raise the apparent Michaelis constant?",
    ],
)  # fmt: skip
def test_questions_about_a_subject(text: str) -> None:
    assert not asks_for_a_fact(text) and added(text)[0] > 0


def test_accents_do_not_matter() -> None:
    at = FEATURES.index("tfidf_math")
    plain, accented = (
        phi(Query(f"Calculate the {name} g-factor of this state."))[at] for name in ("Lande", "Landé")
    )
    assert plain == accented > 0


def test_the_shipped_terms() -> None:
    weights = university_weights()
    assert len(weights) > 6000 and {place for place, _ in weights.values()} == set(range(len(FIELDS)))
    assert min(weight for _, weight in weights.values()) > 0
    assert {"nilpotent", "subgroups", "estoppel", "enthalpy"} <= weights.keys()
    assert not {"number", "water", "dog", "function", "word"} & weights.keys()


def test_short_questions_of_all_sciences() -> None:
    """The weights were chosen on these questions: most hard ones are not simple, and all simple ones are."""
    lines = (HERE / "short.tsv").read_text("utf8").splitlines()
    questions = [line.split("\t") for line in lines if line[0] != "#"]
    model = LearnedEstimator.load()
    simple = {text for _, text in questions if (model.estimate(Query(text)).difficulty or 0.0) < 0.3}
    hard = [text for level, text in questions if level == "hard"]
    assert len(set(hard) - simple) >= 0.75 * len(hard)
    assert not [text for level, text in questions if level == "simple" and text not in simple]
    traps = "".join(
        (HERE / f"{name}.tsv").read_text("utf8")
        for name in ("traps", "traps_unseen", "traps_second", "traps_third")
    )
    assert not [text for _, text in questions if text in traps]


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300))
def test_any_text(text: str) -> None:
    assert asks_for_a_fact(" ".join(text.split())) in (True, False)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("start", ["", "what is ", "is a ", "is it a ", "was "])
@pytest.mark.parametrize("unit", [", a", ".", "a", "what is ", "'", "-", "is a "])
def test_long_texts_take_linear_time(start: str, unit: str) -> None:
    assert not asks_for_a_fact(start + unit * 50_000 + " b c d e")
