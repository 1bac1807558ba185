"""Exact match and F1 of short answers, normalised as SQuAD does."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_WHOLE_ONLY = {"yes", "no", "noanswer"}


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


def normal(text: str) -> str:
    """Lower case, without punctuation, articles and extra white space.

    >>> normal("The  U.S.A.!")
    'usa'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _f1(gold: str, answer: str) -> float:
    if gold in _WHOLE_ONLY or answer in _WHOLE_ONLY or not gold or not answer:
        return float(gold == answer)
    wanted, given = gold.split(), answer.split()
    common = sum((Counter(wanted) & Counter(given)).values())
    return 2 * common / (len(wanted) + len(given))
