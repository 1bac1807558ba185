"""Terms of university courses in short questions: what they add to f15-f17 (SPEC 2.1).

"Is every compact metric space separable?" has six words, and some of them say that it is hard. Public sets hold
almost no such questions, so their weight cannot be learned there: `scripts/build_vocabularies.py` gives each term
its weight. The shorter the question is, the more a term counts; in a question about a name or a date it does not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources

from odar.difficulty.text import terms

SHORT = 24
"""Words: from here on these terms add nothing. A longer question says more about itself."""
_SHORTEST = 8
"""Words: in a shorter question a term counts as in one of this length."""
_WHAT = (
    "year|century|decade|month|day|date|city|country|town|continent|place|person|people|man|woman|university|college|"
    "nationality|scientist|mathematician|physicist|chemist|philosopher|biologist|astronomer|economist|engineer|"
    "inventor|author|writer|doctor|company|book|film|movie|song|letter|colou?r|instrument|magazine|newspaper|prize|award"
)
_START = r"(?:^|[.!?:;,]\ )\W*"
_FACT = re.compile(
    rf"""
    {_START}(?i:
        who(?:m|se)?\b
      | (?:when|where)\ (?:was|were|did)\b
      | where\ (?:is|are)\ (?:the\ )?(?-i:[A-Z])
      | (?:in|on|at|from|after|by)\ (?:(?:which|what)\ (?:\w+\ )?(?:{_WHAT}|language)|whom)\b
      | (?:which|what)\ (?:\w+\ )?(?:{_WHAT})\b
      | how\ (?:old|do\ (?:you|i|we)\ (?:write|say)|many\ people)\b
      | (?:what\ (?:is|was|are|were)|name|tell\ me)\ (?:the\ )?(?:\w+\ )?
        (?:name|singular|abbreviation|acronym|symbol|title|mascot|birthplace|meaning|origin|opposite|unit|{_WHAT})
        \ (?:of|for|in|after|who)\b
    )
  | {_START}(?:[Ww]as|[Ww]ere|[Dd]id|[Hh]ad)\ [A-Z]  # a person, long ago
    # a definition: "What is a monad?", "What does ergodic mean?"
  | ^\W*(?i:(?:what\ (?:is|are)|define)\ (?:an?\ |the\ (?:term\ )?)?|what\ does\ )
    [\w'-]++(?:\ [\w'-]++)?(?:\ mean)?\W*$
    # a kind: "Is a compiler a program or a person?", "Is statics part of mechanics?"
  | ^\W*(?i:is|are)\ (?:(?i:an?|the)\ )?[\w'-]++\ (?:an?\ [\w'-]++(?:\ or\ an?\ [\w'-]++)?\W*$
    |(?:an?\ (?:branch|part|kind|type|form)|part)\ of\ )
  | \bborn\b  # not "Born approximation"
  | \b(?i:stands?\ for|known\ for|discovere[dr])\b
    """,
    re.VERBOSE,
)


def asks_for_a_fact(text: str) -> bool:
    """Return whether a question asks for a name, a date, a word or its meaning: terms in it do not make it hard.

    Its words have single blanks between them.

    >>> asks_for_a_fact("Who found eigenvalues?"), asks_for_a_fact("When are eigenvalues real?")
    (True, False)
    """
    return not _other_context().isdisjoint(terms(text)) or _FACT.search(text) is not None


@cache
def _other_context() -> frozenset[str]:
    """Words about names, teachers and daily life: with one of them, a question is not about the subject itself."""
    lines = resources.files("odar.difficulty").joinpath("data", "other_context.txt").read_text("utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


Weights = Mapping[str, tuple[int, float]]
"""A term to the place of its vocabulary (0, 1, 2 for f15-f17) and its weight: idf times a factor of the field."""


def university_tfidf(counts: Mapping[str, int], text: str, weights: Weights) -> tuple[float, float, float]:
    """Return what terms of university courses add to f15-f17: the sum of √(24/words − 1)·(1 + ln tf)·weight.

    >>> university_tfidf({"nilpotent": 1}, "Is every group of order 2, 3 or 4 abelian or nilpotent?",
    ...     {"nilpotent": (0, 10.0)})
    (10.0, 0.0, 0.0)
    """
    sums = [0.0, 0.0, 0.0]
    found = [term for term in counts if term in weights]
    if found:
        words = text.split()
        if len(words) < SHORT and not asks_for_a_fact(" ".join(words)):
            short = math.sqrt(SHORT / max(len(words), _SHORTEST) - 1.0)
            for term in found:
                place, weight = weights[term]
                sums[place] += short * (1.0 + math.log(counts[term])) * weight
    return sums[0], sums[1], sums[2]
