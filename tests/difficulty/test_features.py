"""φ(x): definitions, robustness, independence from other texts of a batch (SPEC 2.1, 2.2)."""

from __future__ import annotations

import importlib
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyphen import Pyphen

from odar.difficulty import domain, features
from odar.difficulty import text as text_module
from odar.difficulty import text as texts
from odar.difficulty.features import FEATURES, phi, phi_batch
from odar.difficulty.parser import parse_features, tree_depth
from odar.difficulty.text import READ_LIMIT, _latex_blocks, clean, mask_latex, word_lengths
from odar.types import Image, Query

AWKWARD = [
    "", " \n\t ", "\x00", "a\x00b", "\ud800", "\udfff lone \ud801", "¿Cuál es la capital de España?", "巴黎是法国的首都吗？",
    "هل باريس عاصمة فرنسا؟", "def f(x):\n    return x ** 2\n", r"\int_0^1 \frac{dx}{1+x^2}", r"$$\sum_{n=1}^\infty 1/n^2$$",
    "🙂🙃" * 50, "?" * 500, "$" * 300, "\\" * 300, "<|endoftext|>", "a" * 5000, "-", "(A) x (B) y", "\u2028\u2029",
]  # fmt: skip
EXAMPLES = [
    "Is Paris the capital of France?", "Prove that every tree with n vertices has n - 1 edges.",
    "If it rains, I stay at home because the roof of the car leaks. What should I do?\n(A) wait\n(B) go",
    "Write a Python function that reverses a list.", r"Find all $x$ such that $x^2 = 4$.",
]  # fmt: skip


def value(name: str, text: str, images: tuple[Image, ...] = ()) -> float:
    return float(phi(Query(text, images))[FEATURES.index(name)])


@pytest.mark.parametrize("text", AWKWARD, ids=range(len(AWKWARD)))
def test_unusual_text_gives_finite_features(text: str) -> None:
    x = np.array(phi(Query(text)))
    assert x.shape == (24,) and np.isfinite(x).all() and (x >= 0).all()


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300))
def test_fuzzed_text_never_raises(text: str) -> None:
    x = np.array(phi(Query(text)))
    assert np.isfinite(x).all()
    assert x[0] == len(text) and x[1] == len(text.split())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(EXAMPLES + AWKWARD) | st.text(max_size=80), min_size=1, max_size=40), st.data())
def test_batch_of_any_size_equals_single(texts: list[str], data: st.DataObject) -> None:
    i = data.draw(st.integers(0, len(texts) - 1))
    batch = phi_batch(Query(t) for t in texts)
    assert (batch[i] == phi(Query(texts[i]))).all()


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("char_length", "héllo", 5), ("word_count", " a  b\nc ", 3), ("avg_word_length", "ab abcd", 3),
        ("max_word_length", "ab abcd", 4), ("has_digit", "one 1", 1), ("has_digit", "one", 0),
        ("question_marks", "What? Why??", 3), ("is_proof", "Derive the lens equation.", 1),
        ("is_proof", "Please show that n is odd.", 1), ("is_proof", "What is the proof of whisky?", 0),
        ("is_proof", "Where did the word derive from?", 0), ("is_open_ended", "Who is she?", 1),
        ("is_open_ended", "Who? (A) Ann (B) Bob", 0), ("is_multiple_choice", "Who?\nA. Ann\nB. Bob", 1),
        ("is_multiple_choice", "Vitamin A. is good", 0), ("logical_connectives", "thus, hence: for  all x", 3),
        ("logical_connectives", "Sincerely, iffy", 0), ("has_image", "see", 0), ("difficulty_density", "Prove it", 0.5),
        ("difficulty_density", "Improve it", 0),
    ],
)  # fmt: skip
def test_features_match_their_definitions(name: str, text: str, expected: float) -> None:
    assert value(name, text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["3 + 4", "x=1", "a ≤ b", "5 - 2", "x-1", r"\alpha", "$x$", "∇f", "−3"])
def test_math_symbols_are_recognised(text: str) -> None:
    assert features.has_math_symbol(text) == 1


@pytest.mark.parametrize(
    "text", ["well-known", "a 10-year plan", "pre- and post-war", "2n-gon", "$5 and $7", "T-shirt"]
)
def test_other_texts_have_no_math_symbol(text: str) -> None:
    assert features.has_math_symbol(text) == 0


def test_cl100k_counts_are_exact() -> None:
    # counts of tiktoken 0.12, cl100k_base, ordinary text
    for text, count in [
        ("hello world", 2),
        ("Is Paris the capital of France?", 7),
        ("", 0),
        ("tiktoken is great!", 6),
    ]:
        assert features.token_count(text) == count


def test_words_of_a_very_long_text_are_counted_at_its_beginning(monkeypatch) -> None:
    monkeypatch.setattr(text_module, "_COUNT_LIMIT", 60)
    assert word_lengths("abc de " * 4) == [3, 2] * 4
    assert word_lengths("a bcd " * 30) == [1, 3] * 10


def test_only_a_prefix_is_read_but_lengths_are_exact() -> None:
    head = "Prove that every tree has a leaf. " * 700
    long = phi(Query(head + "word " * 100_000))
    names = dict(zip(FEATURES, long, strict=True))
    assert names["word_count"] == 7 * 700 + 100_000 and names["char_length"] == len(head) + 500_000
    read = features.token_count(head[:READ_LIMIT])
    assert names["token_count"] == round(read * names["char_length"] / READ_LIMIT), "scaled, where a text is cut"
    assert names["question_marks"] == 0 == phi(Query("x" * READ_LIMIT + "?"))[FEATURES.index("question_marks")]


TEXTS = [
    "The cat sat on the mat. It was happy there.", "Don't panic! It's only 'quoted' text, isn't it?", "Hi. No. Yes we can do it.",
    "Antidisestablishmentarianism notwithstanding, everybody's favourite word-game remains popular... Really?",
    "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May.", "!!!", "One",
]  # fmt: skip


def test_readability_equals_that_of_textstat(monkeypatch: pytest.MonkeyPatch) -> None:
    textstat = importlib.import_module("textstat")
    counter = importlib.import_module("textstat.backend.counts._count_syllables")
    # textstat would download its pronouncing dictionary; without one it hyphenates, as we do
    monkeypatch.setattr(counter, "get_cmudict", lambda lang: {})
    for text in TEXTS:
        theirs = min(20.0, max(0.0, textstat.flesch_kincaid_grade(text)))
        assert features.readability(text) == pytest.approx(theirs), text


def test_latex_is_masked() -> None:
    assert mask_latex(r"a \[ x \] b \( y \) c") == "a formula b formula c"
    assert mask_latex(r"\begin{align} x &= 1 \end{align}!") == "formula!"
    assert mask_latex("It costs $5-$6 or ($7/$8).") == "It costs $5-$6 or ($7/$8)."
    assert clean("ok") == "ok"


# What a LaTeX block is, as one pattern; too slow on text full of openers that nothing closes.
BLOCK = re.compile(
    r"\$\$.{1,4000}?\$\$|\\\[.{1,4000}?\\\]|\\\(.{1,4000}?\\\)|\\begin\{(\w{1,20}\*?)\}.{0,4000}?\\end\{\1\}"
    r"|(?<![\\$])\$(?=[^\s$])[^$\n]{0,400}?(?<![\s\\])\$(?!\d)",
    re.DOTALL,
)
LATEX = [
    "$",
    "$$",
    "\\",
    "\\(",
    "\\)",
    "\\[",
    "\\]",
    "\\begin{a}",
    "\\end{a}",
    "\\begin{b*}",
    "\\end{b*}",
    " ",
    "\n",
    "x",
    "1",
    "y" * 450,
]


@settings(max_examples=400)
@given(st.lists(st.sampled_from(LATEX), max_size=30).map("".join) | st.text("$\\()[]1 x", max_size=40))
def test_latex_blocks_match_the_pattern(text: str) -> None:
    assert list(_latex_blocks(text)) == [match.span() for match in BLOCK.finditer(text)]


def test_parse_features_of_simple_sentences() -> None:
    texts = ["The dog barks.", "The man who lives here said that he left because it rained.", "  "]
    flat, nested, blank = map(parse_features, texts)
    assert blank == (0.0, 0.0, 0.0)
    assert flat[1] == 0 and nested[1] >= 2
    assert nested[2] > flat[2]


def test_a_line_break_ends_a_sentence() -> None:
    assert parse_features("The first line here\nThe second line here")[0] == 2


@given(st.lists(st.integers(0, 1_000_000), max_size=60))
def test_the_depth_of_random_trees(parents: list[int]) -> None:
    heads = [0 if i == 0 else p % i for i, p in enumerate(parents)]
    expected = 0
    for node in range(len(heads)):
        depth = 1
        while heads[node] != node:
            node, depth = heads[node], depth + 1
        expected = max(expected, depth)
    assert tree_depth(heads) == expected


def test_vocabularies_and_markers_are_found() -> None:
    vocabulary = features.vocabularies()
    assert [len(vocabulary[f]) for f in features.FIELDS] == [87, 92, 7]
    props = {"falcon", "kiwis", "minivan", "golfers", "soap", "football"}  # of single sets, not of logic
    assert "premise" in vocabulary["logic"] and not any(props & terms.keys() for terms in vocabulary.values())
    markers = features.markers()
    assert len(markers) == len(set(markers)) == 47
    # overlapping markers would count one phrase twice
    assert not [(a, b) for a in markers for b in markers if a != b and f" {a} " in f" {b} "]


SCRAPS = [
    "Go", "don't", "3.14", "it's", "well-known", "(a)", "!?", "--", "...", "U.S.", "é", "北京", "'", "İ", "12345", "x_1", "word" * 30,
    "!" * 101 + "a", "a.b", "end.\nNext",
]  # fmt: skip
GAPS = [" ", " ", " ", "  ", "\n", " \n", "\t", "\u00a0", ""]
scraps = st.lists(st.tuples(st.sampled_from(SCRAPS), st.sampled_from(GAPS))).map(
    lambda parts: "".join(map("".join, parts))
)


PYPHEN = Pyphen(lang="en_US", cache=False)


def slow_readability(text: str) -> float:
    """Compute readability by counting words and syllables in the text and in each sentence."""

    def counted(piece: str) -> list[int]:
        words = [word for word in piece.split() if re.search(r"\w", word)]
        bare = [texts._PUNCTUATION.sub("", texts._QUOTE.sub("", word[:100])).lower() for word in words]
        return [len(PYPHEN.positions(word)) + 1 for word in bare]

    counts = counted(text)
    sentences = sum(len(counted(piece)) > 2 for piece in features._SENTENCE.findall(text))
    if not counts:
        return 0.0
    grade = 0.39 * len(counts) / max(1, sentences) + 11.8 * sum(counts) / len(counts) - 15.59
    return min(20.0, max(0.0, grade))


@settings(max_examples=300, deadline=None)
@given(scraps | st.text("ab .!?'-\n1", max_size=60))
def test_readability_by_word_equals_that_of_the_text(text: str) -> None:
    assert features.readability(text) == slow_readability(text)


def test_features_do_not_depend_on_cached_words(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = [Query(text) for text in [*TEXTS, "Two lines\nand  gaps", "Prove that $x$ is prime."]]
    warm = phi_batch(queries)
    for module, name in ((features, "count_syllables"), (domain, "_crc")):
        monkeypatch.setattr(module, name, getattr(module, name).__wrapped__)
    np.testing.assert_array_equal(phi_batch(queries), warm)
    np.testing.assert_array_equal(phi_batch(queries[::-1])[::-1], warm)


@pytest.mark.timeout(180)
def test_the_deepest_tree_takes_linear_time() -> None:
    assert tree_depth([0, *range(500_000)]) == 500_001
