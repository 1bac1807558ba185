"""Short texts: exact match and F1 as SQuAD defines them, edit distances, and yes or no."""

from __future__ import annotations

import difflib
import re
import string
from collections import Counter
from collections.abc import Hashable, Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_WHOLE_ONLY = {"yes", "no", "noanswer"}
_MOST = 5
_WORD = re.compile(r"\b(yes|no|true|false)\b", re.IGNORECASE)
_TRUE = {"yes", "true"}


def exact_match(golds: Sequence[str], answer: str) -> float:
    """1 where the answer is one of the golds, case, articles, ASCII punctuation and white space aside.

    >>> exact_match(["The Eiffel Tower", "Tour Eiffel"], "eiffel tower.")
    1.0
    """
    return float(any(normal(gold) == normal(answer) for gold in golds))


def f1(golds: Sequence[str], answer: str) -> float:
    """Overlap of words with the nearest gold: the harmonic mean of precision and recall.

    Words count as often as they occur. `yes`, `no` and `noanswer` match as a whole or not at all, as HotpotQA's own
    script has it. Two empty answers are the same answer.

    >>> f1(["Barack Obama"], "President Barack Obama")
    0.8
    """
    return max((_f1(normal(gold), normal(answer)) for gold in golds), default=0.0)


def rouge_l(golds: Sequence[str], answer: str) -> float:
    """F-measure of the longest common subsequence of words with the nearest gold (ROUGE-L).

    >>> rouge_l(["the cat sat on the mat"], "the cat was on the mat")
    0.75
    """
    return max((_rouge_l(normal(gold).split(), normal(answer).split()) for gold in golds), default=0.0)


def normal(text: str) -> str:
    """Lower case, without punctuation, articles and extra white space.

    >>> normal("The  U.S.A.!")
    'usa'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _rouge_l(gold: Sequence[str], answer: Sequence[str]) -> float:
    if not gold or not answer:
        return float(gold == answer)
    row = [0] * (len(answer) + 1)
    for wanted in gold:
        diagonal = 0
        for place, given in enumerate(answer, 1):
            above = row[place]
            row[place] = diagonal + 1 if wanted == given else max(above, row[place - 1])
            diagonal = above
    return 2 * row[-1] / (len(gold) + len(answer))


TEXT_SCORERS = {"f1": f1, "rouge_l": rouge_l}
"""Scorers of free text by reference answers, by name."""


def _f1(gold: str, answer: str) -> float:
    if gold in _WHOLE_ONLY or answer in _WHOLE_ONLY or not gold or not answer:
        return float(gold == answer)
    wanted, given = gold.split(), answer.split()
    common = sum((Counter(wanted) & Counter(given)).values())
    return 2 * common / (len(wanted) + len(given))


def levenshtein(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """The fewest insertions, deletions and replacements that turn one sequence into the other.

    >>> levenshtein("kitten", "sitting")
    3
    """
    if len(first) < len(second):
        first, second = second, first
    above = list(range(len(second) + 1))
    for i, a in enumerate(first, start=1):
        row = [i]
        for j, b in enumerate(second, start=1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a != b)))
        above = row
    return above[-1]


def similarity(gold: Sequence[Hashable], given: Sequence[Hashable]) -> float:
    """1 for equal, 0 for nothing in common: one minus the edit distance over the longer length.

    >>> similarity([1, 2, 3, 4], [1, 3, 2, 4])
    0.5
    """
    longest = max(len(gold), len(given))
    return 1.0 - levenshtein(gold, given) / longest if longest else 1.0


def order_similarity(gold: str, answer: str) -> float:
    """How much of the order of a text's sentences was found (LiveBench's plot unscrambling).

    Every gold sentence is matched with the nearest given one, so that small changes of wording do not matter; the
    score is one minus the edit distance of the two orders over the number of gold sentences, never below 0.

    >>> order_similarity("He came. He saw. He won.", "He came. He won. He saw.")
    0.33333333333333337
    """
    wanted, given = _sentences(gold), _sentences(answer)
    if not wanted or not given:
        return float(wanted == given)
    given = given[: _MOST * len(wanted)]  # the rest of an endless answer would only take time
    places = [given.index(difflib.get_close_matches(sentence, given, n=1, cutoff=0.0)[0]) for sentence in wanted]
    return max(0.0, 1.0 - levenshtein(range(len(wanted)), places) / len(wanted))


def _sentences(text: str) -> list[str]:
    return [part.strip() for part in text.split(".") if part.strip()]


def verdict(gold: bool, answer: str) -> float:
    """1 where the answer says what the gold does; `true` is yes and `false` is no.

    A verdict at the beginning counts (`No, Albany is smaller`); otherwise a text must say the same throughout:
    `yes and no` is neither.

    >>> verdict(True, "Yes."), verdict(False, "**False**, it is not"), verdict(True, "maybe")
    (1.0, 1.0, 0.0)
    """
    text = answer.strip(" \n\t*_`\"'(")
    if match := _WORD.match(text):
        rest = text[match.end() :].lstrip("*_`\"' ")
        if not rest or rest[0] in ".,;:!\n)-–—":
            return float((match[1].lower() in _TRUE) is gold)
    said = {word.lower() in _TRUE for word in _WORD.findall(text)}
    return float(said == {gold})
