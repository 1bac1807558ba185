"""Signals of an answer, and their ranks among the answers of the same model (SPEC 5.11).

Log-probabilities and lengths differ more between models than between right and wrong answers of one model, and they
are skewed. Their ranks among the model's own answers are comparable between models and need no labels. Ranks come
from a table: of a calibration, of served answers, or shipped with the package.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike

from odar.policy.answers import MAX_ANSWER_WORDS, is_refusal
from odar.policy.arrays import Array
from odar.types import Candidate, Token


class AnswerKind(StrEnum):
    """How a model wrote its answer, on which the weights of the signals depend.

    The kind of a question is `odar.policy.kinds.Kind`; `odar.policy.equivalence.Form` is how answers compare.
    """

    DIRECT = "direct"
    """A short answer and little else."""
    REASONED = "reasoned"
    """Reasoning that ends in a stated answer."""
    FREE_TEXT = "free_text"
    """Prose that is the answer itself."""


RANKED = ("answer_logprob", "mean_logprob", "length")
"""The signals that are turned into ranks. The others are used as they are."""
LEVELS = 51
"""Number of quantiles in a table."""
GRID = (np.arange(LEVELS) + 0.5) / LEVELS
"""Levels of the quantiles in a table."""
MIN_ANSWERS = 30
"""Minimum number of answers of a kind for a table (SPEC 5.11)."""
MAX_DIRECT_WORDS = 8
"""Maximum number of words around a direct answer, such as "The answer is"."""
_MAX_OCCURRENCES = 1_000
"""Occurrences of an answer that are looked at, the last first."""
_CHOICE = re.compile(r"[\s(*]*([A-Z]|yes|no|true|false)(?=[).:,;*\n]|$)", re.IGNORECASE)
"""A choice at the beginning of a text."""


@dataclass(frozen=True, slots=True)
class AnswerSignals:
    """Signals of one answer; None if unknown."""

    kind: AnswerKind
    stated: bool
    """Whether it marked a final answer, if the prompt asks for it."""
    length: float | None
    """Number of characters of the whole text."""
    mean_logprob: float | None = None
    """Mean log-probability of its tokens."""
    answer_logprob: float | None = None
    """Log-probability of the final answer: the sum over its tokens."""
    finished: bool = True
    """False if it was cut off before its answer, or has none, or only says so."""


class QuantileTables:
    """Quantiles of each signal by kind of answer.

    >>> tables = QuantileTables.fit({("direct", "length"): range(1, 101)})
    >>> [round(tables.rank("direct", "length", value), 2) for value in (2, 50.5, 99)]
    [0.01, 0.5, 0.99]
    """

    def __init__(self, tables: Mapping[tuple[str, str], ArrayLike] | None = None) -> None:
        self.tables: dict[tuple[str, str], Array] = {
            key: np.asarray(values, dtype=np.float64) for key, values in (tables or {}).items()
        }
        self._curves = {key: _curve(table) for key, table in self.tables.items()}

    @classmethod
    def fit(cls, values: Mapping[tuple[str, str], Iterable[float]]) -> QuantileTables:
        """Tables of the signals with at least `MIN_ANSWERS` finite values."""
        finite = {key: np.array([v for v in column if math.isfinite(v)]) for key, column in values.items()}
        return cls({key: np.quantile(v, GRID) for key, v in finite.items() if len(v) >= MIN_ANSWERS})

    @classmethod
    def of_answers(cls, answers: Iterable[AnswerSignals]) -> QuantileTables:
        """Tables of a model's own answers, without unfinished ones."""
        values: dict[tuple[str, str], list[float]] = {}
        for answer in answers:
            for name in RANKED if answer.finished else ():
                if (value := getattr(answer, name)) is not None:
                    values.setdefault((answer.kind.value, name), []).append(value)
        return cls.fit(values)

    def rank(self, kind: str, signal: str, value: float | None) -> float | None:
        """The rank of a value in (0, 1); None if the value or the table is missing.

        Beyond the ends of the table, ranks continue to rise more slowly, so that extreme values differ.
        """
        curve = self._curves.get((kind, signal))
        if curve is None or value is None or not math.isfinite(value):
            return None
        points, levels, width = curve
        rank = np.interp(value, points, levels)
        if value < points[0]:
            below = (points[0] - value) / width
            rank -= levels[0] * below / (1 + below)
        if value > points[-1]:
            above = (value - points[-1]) / width
            rank += (1 - levels[-1]) * above / (1 + above)
        return float(rank)

    def with_fallback(self, fallback: QuantileTables) -> QuantileTables:
        """These tables, and those of `fallback` for missing ones."""
        return QuantileTables({**fallback.tables, **self.tables})

    def to_dict(self) -> dict[str, dict[str, list[float]]]:
        rows: dict[str, dict[str, list[float]]] = {}
        for (kind, signal), table in self.tables.items():
            rows.setdefault(kind, {})[signal] = [float(f"{value:.5g}") for value in table]
        return rows

    @classmethod
    def from_dict(cls, raw: Mapping[str, Mapping[str, Sequence[float]]]) -> QuantileTables:
        """Read what `to_dict` wrote; raises ValueError for an invalid table."""
        tables = {(kind, name): [float(v) for v in row] for kind, rows in raw.items() for name, row in rows.items()}
        for key, table in tables.items():
            if len(table) != LEVELS or not all(map(math.isfinite, table)) or table != sorted(table):
                raise ValueError(f"quantiles of {' '.join(key)}: expected {LEVELS} numbers in ascending order")
        return cls(tables)


@cache
def shipped_tables() -> QuantileTables:
    """The quantiles that stand in for a model with too few known answers, by kind of answer."""
    text = resources.files("odar.policy").joinpath("quantiles.json").read_text("utf-8")
    return QuantileTables.from_dict(json.loads(text))


def _curve(table: Array) -> tuple[Array, Array, float]:
    """The distinct values of a table, their ranks and their range; equal quantiles share the mean rank."""
    table = np.where(np.abs(table) < 1e-300, 0.0, table)  # between denormal numbers a slope is infinite
    points, first, count = np.unique(table, return_index=True, return_counts=True)
    levels = GRID[first] + (count - 1) / (2 * LEVELS)
    return points, levels, max(float(points[-1] - points[0]), 1e-9)


def answer_signals(candidate: Candidate) -> AnswerSignals:
    logprobs = [t.logprob for t in candidate.tokens if t.logprob is not None and not t.control]
    kind = answer_kind(candidate.text, candidate.answer, candidate.stated)
    # free text that was cut off is an answer; reasoning that was cut off has not reached its answer
    cut_off = candidate.finish == "length" and (kind is AnswerKind.REASONED or not candidate.stated)
    return AnswerSignals(
        kind=kind,
        stated=candidate.stated,
        length=float(len(candidate.text)),
        mean_logprob=math.fsum(logprobs) / len(logprobs) if logprobs else None,
        # the sum over a tool call depends mostly on the length of its arguments.
        answer_logprob=None if candidate.tool_calls else answer_logprob(candidate.tokens, candidate.answer),
        finished=not cut_off
        and (candidate.stated or bool(candidate.answer.strip()))
        and not is_refusal(candidate.answer),
    )


def answer_kind(text: str, answer: str, stated: bool = True) -> AnswerKind:
    """The kind of an answer. A short text is a direct answer even if it is not marked.

    So is a text that begins with a letter, or yes or no, and does not repeat it: the rest was written after it.

    >>> answer_kind("Answer: Paris", "Paris"), answer_kind("So 2 + 2 = 4. " * 5 + "Answer: 4", "4")
    (<AnswerKind.DIRECT: 'direct'>, <AnswerKind.REASONED: 'reasoned'>)
    >>> answer_kind("B. " + "a long option " * 5, "B"), answer_kind("A train of 9 cars " * 5 + "Answer: A", "A")
    (<AnswerKind.DIRECT: 'direct'>, <AnswerKind.REASONED: 'reasoned'>)
    """
    words = len(answer.split())
    if words > MAX_ANSWER_WORDS:
        return AnswerKind.FREE_TEXT if stated else AnswerKind.REASONED
    if not stated and not words:
        return AnswerKind.REASONED
    begins = _CHOICE.match(text)
    if begins is not None and begins[1] == answer and _find_last(text, answer) == begins.start(1):
        return AnswerKind.DIRECT
    return AnswerKind.DIRECT if len(text.split()) - words <= MAX_DIRECT_WORDS else AnswerKind.REASONED


def answer_logprob(tokens: Sequence[Token], answer: str) -> float | None:
    """The sum of the log-probabilities of the tokens of the last occurrence of the answer.

    It is None if the text does not contain the answer, or one of its tokens has no log-probability.
    """
    counted = [token for token in tokens if not token.control]
    start = _find_last("".join(token.text for token in counted), answer)
    if start < 0:
        return None
    total = 0.0
    for token, end in zip(counted, accumulate(len(token.text) for token in counted), strict=True):
        begin = end - len(token.text)
        if begin < start + len(answer) and end > start and token.text.strip():
            if token.logprob is None:
                return None
            total += token.logprob
    return total


def _find_last(text: str, answer: str) -> int:
    """The last position of an answer in a text, preferably as whole words; −1 if it does not occur.

    >>> _find_last("Answer: B (Brussels)", "B"), _find_last("Answer: 4kg", "4"), _find_last("none", "5")
    (8, 8, -1)
    """
    last = start = text.rfind(answer) if answer else -1
    for _ in range(_MAX_OCCURRENCES):
        if start < 0:
            break
        end = start + len(answer)
        word_before = start > 0 and text[start - 1].isalnum() and answer[0].isalnum()
        word_after = text[end : end + 1].isalnum() and answer[-1].isalnum()
        if not word_before and not word_after:
            return start
        start = text.rfind(answer, 0, start + len(answer) - 1)
    return last
