"""Recorded candidates in a file, and every fusion rule applied to them.

The format, one JSON object a line; researchers bring their own samples:

    {"query": "…",                        the question (optional)
     "gold": "42",                        the right answer, or a list of right answers
     "candidates": [
       {"model": "llama-3.1-8b",          who wrote it; energies are made comparable per model
        "text": "… Answer: 42",           the raw text
        "answer": "42",                   the final answer; parsed from the text if left out
        "agent": "slow",                  fast or slow; slow if left out
        "tokens": [["The", -0.1], …]},    tokens and their log-probabilities, null where unknown
       …]}
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from odar.calibration.bootstrap import Interval, bootstrap_mean
from odar.errors import InputError
from odar.fusion.answers import extract_answer
from odar.fusion.choose import Fusion
from odar.fusion.energy import Alignment, measure
from odar.fusion.equivalence import equivalent, group
from odar.fusion.rules import RULES
from odar.fusion.stopping import Stopping
from odar.types import Candidate, Step, Token


@dataclass(frozen=True, slots=True)
class Question:
    """A recorded question: its candidates, and which of them are right."""

    candidates: tuple[Candidate, ...]
    correct: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class RuleResult:
    """How one rule does on a file."""

    rule: str
    accuracy: Interval
    against_majority: Interval
    """Paired difference to plain voting."""


def load_questions(path: str | Path, varentropy_weight: float) -> list[Question]:
    """The questions of a file, energies measured and aligned per model over the whole file.

    Raises:
        InputError: the file cannot be read, or a line is not a recorded question; names the line.
    """
    try:
        lines = Path(path).expanduser().read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    questions = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                questions.append(_question(json.loads(line), varentropy_weight))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                why = f"lacks {error}" if isinstance(error, KeyError) else str(error)
                raise InputError(f"{path}, line {number} is not a recorded question: {why}") from None
    if not questions:
        raise InputError(f"{path} holds no recorded questions")
    return _aligned(questions, varentropy_weight)


def apply_rules(questions: Sequence[Question], beta: float, missing_limit: float, seed: int) -> list[RuleResult]:
    """Every registered rule, the paper's argmin beside our own, and a single candidate for comparison."""
    settings = {f"fep β={beta:g}": Fusion("fep", beta, missing_limit), "fep β=inf (argmin)": Fusion("fep")}
    settings |= {name: Fusion(name, missing_limit=missing_limit) for name in sorted(RULES.names()) if name != "fep"}
    right = {
        name: np.array([q.correct[fusion.choose(q.candidates).winner] for q in questions], dtype=float)
        for name, fusion in settings.items()
    }
    right["mean candidate"] = np.array([np.mean(q.correct) for q in questions])
    return [
        RuleResult(name, bootstrap_mean(each, seed), bootstrap_mean(each - right["majority"], seed))
        for name, each in right.items()
    ]


def oracle(questions: Sequence[Question]) -> float:
    """The share of questions with a right candidate: no rule can do better."""
    return float(np.mean([any(q.correct) for q in questions]))


def stop_early(questions: Sequence[Question], fusion: Fusion, stopping: Stopping) -> tuple[float, float]:
    """Mean candidates looked at, and accuracy, if sampling stops once the answer is settled (SPEC 5.12)."""
    looked, right = [], []
    for question in questions:
        groups = group([candidate.answer for candidate in question.candidates])
        size = len(groups)
        taken = next((k for k in range(1, size) if stopping.decided(groups[:k], size - k)), size)
        looked.append(taken)
        right.append(question.correct[fusion.choose(question.candidates[:taken]).winner])
    return float(np.mean(looked)), float(np.mean(right))


def _question(row: dict[str, Any], weight: float) -> Question:
    gold = row["gold"] if isinstance(row["gold"], list) else [row["gold"]]
    candidates = tuple(_candidate(each, weight) for each in row["candidates"])
    if not candidates:
        raise ValueError("no candidates")
    return Question(candidates, tuple(any(equivalent(c.answer, str(g)) for g in gold) for c in candidates))


def _candidate(row: dict[str, Any], weight: float) -> Candidate:
    tokens = tuple(
        Token(str(text), None if value is None else float(value)) for text, value in row.get("tokens", ())
    )
    text = row.get("text", "".join(token.text for token in tokens))
    step = Step.ANSWER if row.get("agent") == "fast" else Step.SOLVE
    answer = str(row["answer"]) if "answer" in row else extract_answer(text)
    return Candidate(
        step, str(row.get("model", "model")), text, answer, tokens, energy=measure(tokens, weight, None)
    )


def _aligned(questions: list[Question], weight: float) -> list[Question]:
    values: dict[tuple[str, Step], list[float]] = defaultdict(list)
    for question in questions:
        for candidate in question.candidates:
            if candidate.energy is not None:
                values[candidate.model, candidate.step].append(candidate.energy.free_energy)
    statistics = {
        source: Alignment(float(np.mean(found)), float(np.std(found)) or 1.0) for source, found in values.items()
    }

    def align(candidate: Candidate) -> Candidate:
        statistic = statistics.get((candidate.model, candidate.step))
        return replace(candidate, energy=measure(candidate.tokens, weight, statistic))

    return [Question(tuple(map(align, q.candidates)), q.correct) for q in questions]
