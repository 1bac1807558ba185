"""Structural features f9-f14 (SPEC 2.1). f9, f10 and f13 come from one parse, see `parse`."""

from __future__ import annotations

import re

from odar.types import Query

CONNECTIVES = (
    "if", "then", "therefore", "hence", "thus", "because", "since", "implies", "iff", "for all",
    "there exists", "such that",
)  # fmt: skip
"""The set L of the paper."""

_CONNECTIVE = re.compile(r"\b(?:" + "|".join(CONNECTIVES).replace(" ", r"\s+") + r")\b")


def question_marks(text: str) -> float:
    """f11: how many "?" there are."""
    return float(text.count("?"))


def has_image(query: Query) -> float:
    """f12: whether an image is part of the query."""
    return float(bool(query.images))


def logical_connectives(text: str) -> float:
    """f14: logical connectives, whole words, any case.

    >>> logical_connectives("If n is even then, FOR ALL k, such that sincere thieves...")
    4.0
    """
    return float(sum(1 for _ in _CONNECTIVE.finditer(text.lower())))
