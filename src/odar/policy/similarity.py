"""How far two answers without an exact form say the same (SPEC 5.15).

Numbers, choices, dates and short words are equal or not (`odar.policy.equivalence`). Five models phrase an
explanation in five ways, so free text is compared by a similarity s in [0, 1]: prose by its words, weighted by
rarity; code by its tokens; JSON field by field. `answer_form` and `is_free_text` decide where.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np

from odar.difficulty.features import word_rarity
from odar.policy.arrays import Array, Bools, Ints, Rows
from odar.policy.equivalence import canonical, equivalent, group_answers, grouping_depends_on_others
from odar.policy.rules import same_answer
from odar.registry import Registry

Similarity = Callable[[Sequence[str]], Array]
"""Returns an (n, n) symmetric matrix in [0, 1]; s of two texts must not depend on the others.

Apply a floor, so that what says nothing in common is 0. Register one under the entry point `odar.similarities`."""
EXACT_ONLY = "none"
"""The name of no similarity at all: answers are equal or not, free text included."""
SIMILARITIES: Registry[Similarity] = Registry(
    "similarity",
    {"lexical": "odar.policy.similarity:lexical", "minilm": "odar.providers.minilm:similarity"},
    group="odar.similarities",
)
"""Similarities by name."""
FLOOR = 0.2
"""Less word overlap than this counts as none: answers to the same question share some words by chance."""
SENTENCE_WORDS = 6
"""A text of at least this many words has no exact form: two models would not phrase it alike."""
CODE_WORDS = 20
"""The same for what looks like a formula, if it is on one line."""


class AnswerForm(IntEnum):
    """Whether answers like this one can be compared exactly."""

    EXACT = -1
    """A number, a choice, a date or a tool call."""
    SHORT = 0
    """A few words, yes or no, a list; also a text that should have stated an answer and did not."""
    FREE = 1
    """Sentences, code, JSON."""


def answer_form(answer: str, *, stated: bool = True) -> AnswerForm:
    """Return the form of an answer."""
    if not stated:
        return AnswerForm.SHORT
    form = canonical(answer)
    if form.kind in ("number", "choice", "date"):
        return AnswerForm.EXACT
    if _fields(answer) is not None:
        return AnswerForm.FREE
    words = len(answer.split(maxsplit=CODE_WORDS))
    if form.kind == "formula":
        return AnswerForm.FREE if "\n" in answer.strip() or words > CODE_WORDS else AnswerForm.SHORT
    return AnswerForm.FREE if form.kind == "text" and words >= SENTENCE_WORDS else AnswerForm.SHORT


_OPTION = re.compile(r"^\s*(?:\(([A-J])\)|([A-J])[.):])\s+\S", re.MULTILINE)


def asks_for_choice(question: str) -> bool:
    """Return whether a question lists options to choose from: the answer then has an exact form."""
    return len({letter for pair in _OPTION.findall(question) for letter in pair if letter}) > 1


def is_free_text(forms: Sequence[int]) -> bool:
    """Return whether candidates of these forms are compared by similarity.

    More than half of them must have no exact form, and none may be a number, a choice or a date.

    >>> is_free_text([AnswerForm.FREE, AnswerForm.FREE, AnswerForm.SHORT]), is_free_text([AnswerForm.FREE, -1])
    (True, False)
    """
    return len(forms) > 1 and min(forms) >= 0 and 2 * sum(form > 0 for form in forms) > len(forms)


def prepare_similarity(name: str) -> None:
    """Load what a similarity needs, so that errors are raised now and not after answers were paid for."""
    prepare = None if name == EXACT_ONLY else getattr(SIMILARITIES[name], "prepare", None)
    if prepare is not None:
        prepare()


def similarity_matrix(texts: Sequence[str], groups: Sequence[int], similarity: str) -> Array:
    """Return s between all answers: 1 where they are equivalent (share a group), else their similarity."""
    numbers = np.asarray(groups)
    same = numbers[:, None] == numbers[None, :]
    return np.where(same, 1.0, SIMILARITIES[similarity](texts))


def lexical(texts: Sequence[str]) -> Array:
    """Return the similarity of answers by their words, tokens or fields; 0 below `FLOOR`.

    >>> lexical(["Seeds pass through your body.", "The seeds pass through.", "You die."]).round(1).tolist()
    [[1.0, 0.8, 0.0], [0.8, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    read = [_read(text) for text in texts]
    matrix = np.eye(len(texts))
    for i, (kind, parts) in enumerate(read):
        for j, (other, others) in enumerate(read[:i]):
            compare = _compare_fields if kind == "fields" else _dice
            s = compare(parts, others) if kind == other else 0.0  # nothing in common: code and prose
            matrix[i, j] = matrix[j, i] = s if s >= FLOOR else 0.0
    return matrix


def word_overlap(first: str, second: str) -> float:
    """Return the rarity-weighted share of words that two texts have in common, without a floor (Dice)."""
    return _dice(weighted_words(first), weighted_words(second))


def _read(text: str) -> tuple[str, Mapping[str, Any]]:
    """Split an answer into JSON fields, code or words, ready for comparison with several others."""
    if (fields := _fields(text)) is not None:
        return "fields", fields
    if (code := _code(text)) is not None:
        return "code", code
    return "words", weighted_words(text)


_WORD = re.compile(r"\w+(?:'\w+)?")
_NEGATIONS = frozenset(("no", "not", "never", "none", "nothing", "nobody", "neither", "nor", "cannot", "without"))


def weighted_words(text: str) -> dict[str, float]:
    """Return the words of a text, each with its count times its rarity."""
    counts = Counter(_WORD.findall(text.lower().replace("’", "'")))
    return {word: count * _weight(word) for word, count in counts.items()}


def _weight(word: str) -> float:
    """Return the rarity of a word. Negations are common but decide what a sentence says: they count as rare."""
    return 1.0 if word in _NEGATIONS or word.endswith("n't") else word_rarity(word)


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
_LINE_COMMENT = re.compile(r"(?:#|//)[^\n]*")
_CODE_TOKEN = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?|\"[^\"\n]*\"|'[^'\n]*'|[^\s\w]")


def _code(text: str) -> dict[str, float] | None:
    """Count the tokens of code, comments and layout aside; None if the text is mostly prose."""
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
    """Return the leaves of a JSON object or array by path; None for any other text."""
    bare = text.strip()
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
    """Return the mean similarity over all fields; one that only one side has counts as 0."""
    shared = [name for name in first if name in second]
    return math.fsum(_compare_leaves(first[name], second[name]) for name in shared) / len({**first, **second})


def _compare_leaves(first: Any, second: Any) -> float:
    if not isinstance(first, str) or not isinstance(second, str):
        return float(type(first) is type(second) and first == second)
    if is_free_text((answer_form(first), answer_form(second))):
        return word_overlap(first, second)
    return float(equivalent(first, second))


@dataclass(frozen=True, slots=True)
class AnswerRows(Rows):
    """Groups and similarities of N recorded questions with up to M candidates, for any choice of candidates."""

    groups: Ints
    """Shape (N, M): the group number of each answer if all candidates are present; −1 for a missing candidate."""
    forms: Ints
    """(N, M) the `AnswerForm` of each answer."""
    open: Mapping[int, Sequence[str]]
    """Answers of the rows whose groups depend on which candidates are present: they are grouped again each time."""
    matrices: Mapping[int, Array]
    """(M, M) similarities of the rows that can be free text, equivalence aside."""

    @classmethod
    def of_answers(
        cls,
        rows: Sequence[Sequence[str]],
        stated: Sequence[Sequence[bool]],
        questions: Sequence[str],
        similarity: str,
    ) -> AnswerRows:
        """Group and compare the answers of each question."""
        width = max(map(len, rows), default=0)
        groups, forms = np.full((len(rows), width), -1), np.zeros((len(rows), width), dtype=np.int64)
        matrices: dict[int, Array] = {}
        for i, (answers, told, question) in enumerate(zip(rows, stated, questions, strict=True)):
            spelt = list(dict.fromkeys(answers))  # parsed once: samples often agree to the letter
            numbers = dict(zip(spelt, group_answers(spelt), strict=True))
            groups[i, : len(answers)] = [numbers[answer] for answer in answers]
            if similarity == EXACT_ONLY or asks_for_choice(question):
                continue
            found = [answer_form(answer, stated=said) for answer, said in zip(answers, told, strict=True)]
            forms[i, : len(found)] = found
            if sum(form > 0 for form in found) > 1:
                matrices[i] = np.eye(width)
                matrices[i][: len(found), : len(found)] = SIMILARITIES[similarity](answers)
        return cls(
            groups, forms, {i: row for i, row in enumerate(rows) if grouping_depends_on_others(row)}, matrices
        )

    def exact(self) -> AnswerRows:
        """Return the same without similarities: answers are equal or not."""
        return replace(self, matrices={})

    def rows(self, index: Ints | Bools | slice) -> AnswerRows:
        """Return some of the questions."""
        places = list(enumerate(np.arange(len(self.groups))[index].tolist()))
        open_rows = {new: self.open[old] for new, old in places if old in self.open}
        matrices = {new: self.matrices[old] for new, old in places if old in self.matrices}
        return AnswerRows(self.groups[index], self.forms[index], open_rows, matrices)

    @classmethod
    def concatenate(cls, parts: Sequence[AnswerRows]) -> AnswerRows:
        """Return the questions of several parts, in order."""
        starts = np.cumsum([0, *(len(part.groups) for part in parts)]).tolist()
        each = list(zip(starts, parts, strict=False))
        return cls(
            np.concatenate([part.groups for part in parts]),
            np.concatenate([part.forms for part in parts]),
            {start + i: row for start, part in each for i, row in part.open.items()},
            {start + i: matrix for start, part in each for i, matrix in part.matrices.items()},
        )

    def groups_and_similarity(self, present: Bools) -> tuple[Ints, Array | None]:
        """Return groups, −1 for the absent, and (N, M, M) similarities; None if no row is free text."""
        groups = np.where(present, self.groups, -1)
        for row, answers in self.open.items():
            there = np.flatnonzero(present[row])
            groups[row, there] = group_answers([answers[column] for column in there.tolist()])
        free = [row for row in self.matrices if is_free_text(self.forms[row, present[row]].tolist())]
        if not free:
            return groups, None
        found = same_answer(groups)
        for row in free:
            found[row] = np.maximum(found[row], self.matrices[row])
        return groups, found
