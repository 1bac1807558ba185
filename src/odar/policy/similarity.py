"""Similarity of free-text answers (SPEC 5.15).

Numbers, choices, dates and short words are equal or not (`odar.policy.equivalence`). Five models phrase an
explanation in five ways, so free text is compared by a similarity s in [0, 1]: prose by its words, weighted by
rarity; code by its tokens; JSON field by field. `are_free_text` decides whether answers are free text.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from odar.difficulty.features import word_rarity
from odar.difficulty.text import READ_LIMIT
from odar.policy.arrays import Array
from odar.policy.equivalence import canonical_form, equivalent

FLOOR = 0.2
"""Word overlap below which s is 0: answers to the same question share some words by chance."""
SENTENCE_WORDS = 6
"""Minimum number of words of free text."""
CODE_WORDS = 20
"""Maximum number of words of a formula on one line; a longer one is code, and free text."""


def is_free_text(answer: str) -> bool | None:
    """Whether an answer is free text: sentences, code, JSON. None for the exact forms: a number, a choice, a date.

    >>> is_free_text("It rains all day in the north."), is_free_text("Paris"), is_free_text("42")
    (True, False, None)
    """
    form = canonical_form(answer)
    if form.kind in ("number", "choice", "date"):
        return None
    if _fields(answer) is not None:
        return True
    words = len(answer.split(maxsplit=CODE_WORDS))
    if form.kind == "formula":
        return "\n" in answer.strip() or words > CODE_WORDS
    return form.kind == "text" and words >= SENTENCE_WORDS


_OPTION = re.compile(r"^[^\S\n]*(?:\(([A-J])\)|([A-J])[.):])\s+\S", re.MULTILINE)
"""(A) Rome or B. Paris, at the beginning of a line"""


def asks_for_choice(question: str) -> bool:
    """Whether a question lists options to choose from, so that the answer has an exact form."""
    return len({letter for pair in _OPTION.findall(question) for letter in pair if letter}) > 1


def are_free_text(forms: Sequence[bool | None]) -> bool:
    """Whether several answers are compared by similarity, given `is_free_text` of each.

    More than half of them must be free text, and none may be of an exact form.

    >>> are_free_text([True, True, False]), are_free_text([True, None])
    (True, False)
    """
    return len(forms) > 1 and None not in forms and 2 * sum(map(bool, forms)) > len(forms)


def lexical_similarity(texts: Sequence[str]) -> Array:
    """Similarity of answers by their words, tokens or fields; 0 below `FLOOR`.

    >>> lexical_similarity(["Seeds pass through the body.", "The seeds pass.", "You die."]).round(1).tolist()
    [[1.0, 0.8, 0.0], [0.8, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    parsed = [_parse(text[:READ_LIMIT]) for text in texts]
    matrix = np.eye(len(texts))
    for i, (kind, parts) in enumerate(parsed):
        for j, (other_kind, other_parts) in enumerate(parsed[:i]):
            compare = _compare_fields if kind == "fields" else _dice
            s = compare(parts, other_parts) if kind == other_kind else 0.0
            matrix[i, j] = matrix[j, i] = s if s >= FLOOR else 0.0
    return matrix


def word_overlap(first: str, second: str) -> float:
    """Rarity-weighted Dice coefficient of the words of two texts, without a floor."""
    return _dice(weighted_words(first), weighted_words(second))


def _parse(text: str) -> tuple[str, Mapping[str, Any]]:
    """The kind of an answer and its parts: JSON fields, tokens of code, or words."""
    if (fields := _fields(text)) is not None:
        return "fields", fields
    if (code := _code(text)) is not None:
        return "code", code
    return "words", weighted_words(text)


_WORD = re.compile(r"\w+(?:'\w+)?")
_NEGATIONS = frozenset(("no", "not", "never", "none", "nothing", "nobody", "neither", "nor", "cannot", "without"))


def weighted_words(text: str) -> dict[str, float]:
    """The words of a text, each with its count times its rarity.

    Negations count as rare, because they change the meaning of a sentence.
    """
    counts = Counter(_WORD.findall(text.lower().replace("’", "'")))
    return {
        word: count * (1.0 if word in _NEGATIONS or word.endswith("n't") else word_rarity(word))
        for word, count in counts.items()
    }


def _dice(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    # exact sums, so that s does not depend on the order of words or texts
    total = math.fsum((*first.values(), *second.values()))
    if not total:
        return float(first == second)
    return 2 * math.fsum(min(weight, second[word]) for word, weight in first.items() if word in second) / total


_FENCED = re.compile(r"```[\w+-]*\n(.*?)(?:```|\Z)", re.DOTALL)
_CODE_LINE = re.compile(
    r"^\s*(?:def |class |import |from \w+ import|return\b|#include|public |function |const |let |var |SELECT |"
    r"if .*[:{]$|for .*[:{]$|while .*[:{]$|\w+\(.*\);?$|[\w.\[\]]+ [-+*/]?= |[{}]$)",
    re.MULTILINE,
)
"""def f(x):, x = 4, print(x); or a brace"""
_LINE_COMMENT = re.compile(r"(?:#|//)[^\n]*")
_CODE_TOKEN = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?|\"[^\"\n]*\"|'[^'\n]*'|[^\s\w]")


def _code(text: str) -> dict[str, float] | None:
    """Counts of the tokens of code, without comments; None if the text is mostly prose."""
    blocks = _FENCED.findall(text)
    source = "\n".join(blocks)
    if not blocks:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2 or 2 * sum(bool(_CODE_LINE.match(line)) for line in lines) < len(lines):
            return None
        source = text
    elif 2 * len(source) < len(text):
        return None
    tokens = _CODE_TOKEN.findall(_LINE_COMMENT.sub("", source))
    return {token: float(count) for token, count in Counter(tokens).items()}


def _fields(text: str) -> dict[str, Any] | None:
    """The leaves of a JSON object or array by path; None for any other text."""
    bare = text.strip() if len(text) <= READ_LIMIT else ""
    if bare[:1] + bare[-1:] not in ("{}", "[]") or '"' not in bare:
        return None
    try:
        tree = json.loads(bare)
    except (ValueError, RecursionError):
        return None
    leaves: dict[str, Any] = {}
    todo = [("", tree)]
    while todo:
        path, value = todo.pop()
        if isinstance(value, dict):
            todo += [(f"{path}.{name}", each) for name, each in value.items()]
        elif isinstance(value, list):
            todo += [(f"{path}[{i}]", each) for i, each in enumerate(value)]
        else:
            leaves[path] = value
    return leaves if len(leaves) > 1 else None


def _compare_fields(first: Mapping[str, Any], second: Mapping[str, Any]) -> float:
    """Mean similarity over all fields; it is 0 for a field that only one side has."""
    shared = [name for name in first if name in second]
    return math.fsum(_compare_leaves(first[name], second[name]) for name in shared) / len({**first, **second})


def _compare_leaves(first: Any, second: Any) -> float:
    if not isinstance(first, str) or not isinstance(second, str):
        return float(type(first) is type(second) and first == second)
    if are_free_text((is_free_text(first), is_free_text(second))):
        return word_overlap(first, second)
    return float(equivalent(first, second))
