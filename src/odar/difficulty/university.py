"""Terms of university courses in short questions, and their part of f15-f17 (SPEC 2.1).

"Is every compact metric space separable?" has six words, and some of them show that it is hard. Public sets have
almost no such questions, so the weights cannot be learned there: `scripts/build_vocabularies.py` gives each term
its weight. A term counts more in a shorter question, and not at all in a question about a name or a date.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache

from odar.difficulty.text import DATA, terms

MAX_WORDS = 24
"""Words of a question from which on these terms add nothing: a longer question says more about itself."""
_MIN_WORDS = 8
"""Words below which a question counts as one of this length."""

_CLAUSE_START = r"(?:^|[.!?:;,] )\W{0,20}+"
_TERM = r"[\w'-]++"
_NOUN = (
    "year|century|decade|month|day|date|city|country|town|continent|place|person|people|man|woman|university|college|"
    "nationality|scientist|mathematician|physicist|chemist|philosopher|biologist|astronomer|economist|engineer|"
    "inventor|author|writer|doctor|company|book|film|movie|song|letter|colou?r|instrument|magazine|newspaper|prize|award"
)
_ATTRIBUTE = "name|singular|abbreviation|acronym|symbol|title|mascot|birthplace|meaning|origin|opposite|unit"
_QUESTIONS = (
    r"who(?:m|se)?\b",
    r"(?:when|where) (?:was|were|did)\b",
    r"where (?:is|are) (?:the )?(?-i:[A-Z])",  # Where is the Louvre?
    rf"(?:in|on|at|from|after|by) (?:(?:which|what) (?:\w+ )?(?:{_NOUN}|language)|whom)\b",  # In what year …?
    rf"(?:which|what) (?:\w+ )?(?:{_NOUN})\b",  # Which German mathematician …?
    r"how (?:old|do (?:you|i|we) (?:write|say)|many people)\b",
    r"(?:what (?:is|was|are|were)|name|tell me) "  # Tell me the name of …
    rf"(?:the )?(?:\w+ )?(?:{_ATTRIBUTE}|{_NOUN}) (?:of|for|in|after|who)\b",
)
_ABOUT_THE_PAST = r"(?:[Ww]as|[Ww]ere|[Dd]id|[Hh]ad) [A-Z]"  # Did Euler …?
_DEFINITION = (  # What is a monad? What does ergodic mean?
    r"^\W*(?i:(?:what (?:is|are)|define) (?:an? |the (?:term )?)?|what does )"
    rf"{_TERM}(?: {_TERM})?(?: mean)?\W*$"
)
_CLASSIFICATION = (  # Is a compiler a program or a person? Is statics part of mechanics?
    rf"^\W*(?i:is|are) (?:(?i:an?|the) )?{_TERM} "
    rf"(?:an? {_TERM}(?: or an? {_TERM})?\W*$|(?:an? (?:branch|part|kind|type|form)|part) of )"
)
_FACT = re.compile(
    rf"{_CLAUSE_START}(?i:{'|'.join(_QUESTIONS)})|{_CLAUSE_START}{_ABOUT_THE_PAST}|{_DEFINITION}|{_CLASSIFICATION}"
    r"|\bborn\b"  # but not the Born approximation
    r"|\b(?i:stands? for|known for|discovere[dr])\b"
)
"""Questions for a name, a date, a word or its meaning."""


def asks_for_a_fact(text: str) -> bool:
    """Return whether a question asks for a name, a date, a word or its meaning: terms in it do not make it hard.

    Words of the text are separated by single blanks.

    >>> asks_for_a_fact("Who found eigenvalues?"), asks_for_a_fact("When are eigenvalues real?")
    (True, False)
    """
    return not _everyday_words().isdisjoint(terms(text)) or _FACT.search(text) is not None


@cache
def _everyday_words() -> frozenset[str]:
    """Return words about names, teachers and daily life: a question with one of them is not about the subject."""
    lines = DATA.joinpath("other_context.txt").read_text("utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


TermWeights = Mapping[str, tuple[int, float]]
"""Index of the vocabulary (0, 1, 2 for f15-f17) and weight, idf times a factor of the field, of each term."""


def university_tfidf(counts: Mapping[str, int], text: str, weights: TermWeights) -> tuple[float, float, float]:
    """Return the part of f15-f17 from university terms: the sum of √(24/words − 1)·(1 + ln tf)·weight.

    >>> university_tfidf({"nilpotent": 1}, "Is every group of order 2, 3 or 4 abelian or nilpotent?",
    ...     {"nilpotent": (0, 10.0)})
    (10.0, 0.0, 0.0)
    """
    sums = [0.0, 0.0, 0.0]
    university_terms = [term for term in counts if term in weights]
    if university_terms:
        words = text.split()
        if len(words) < MAX_WORDS and not asks_for_a_fact(" ".join(words)):
            factor = math.sqrt(MAX_WORDS / max(len(words), _MIN_WORDS) - 1.0)
            for term in university_terms:
                index, weight = weights[term]
                sums[index] += factor * (1.0 + math.log(counts[term])) * weight
    return sums[0], sums[1], sums[2]
