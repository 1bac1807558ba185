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

import gzip
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from odar.calibration.bootstrap import Interval, bootstrap_mean
from odar.calibration.jsonl import parse_lines
from odar.errors import InputError
from odar.evals.samples import FORMAT
from odar.files import user_path
from odar.formats import check_format
from odar.policy.answers import extract_answer
from odar.policy.energy import Alignment, measure
from odar.policy.equivalence import equivalent
from odar.policy.fusion import Fusion
from odar.policy.rules import RULES, Array
from odar.policy.stopping import Stopping
from odar.types import Candidate, Role, Step, Token


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
    against_argmin: Interval
    """Paired difference to the paper's rule, the single candidate of lowest free energy."""


@dataclass(frozen=True, slots=True)
class StoppingResult:
    """What stopping early saves, and what it costs."""

    confidence: float
    first_look: int
    """Slow samples before the first look."""
    slow_calls: float
    """Mean slow samples per question."""
    saved: float
    """The share of all slow samples that were not needed."""
    accuracy: float
    against_all: Interval
    """Paired difference to looking at every sample."""


def load_questions(path: str | Path, varentropy_weight: float) -> list[Question]:
    """The questions of a file, energies measured and aligned per model over the whole file.

    Raises:
        InputError: the file cannot be read, or a line is not a recorded question; names the line.
    """
    file = user_path(path)
    try:
        raw = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        text = raw.decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None

    def decode(row: dict[str, Any], number: int, folder: Path) -> Question | None:
        if number == 1 and "format" in row:  # the first line of what `odar sample` writes
            check_format(row["format"], FORMAT, str(path), "record it again with `odar sample`")
            return None
        return None if row.get("error") else _question(row, varentropy_weight)  # an item may have failed there

    found = parse_lines(text, str(path), file.parent, decode, "is not a recorded question")
    questions = [question for question in found if question is not None]
    if not questions:
        raise InputError(f"{path} holds no recorded questions")
    return _aligned(questions, varentropy_weight)


def apply_rules(
    questions: Sequence[Question], beta: float, missing_limit: float, seed: int, fitted: Array | None = None
) -> list[RuleResult]:
    """Every registered rule, the paper's argmin beside our own, and a single candidate for comparison.

    Args:
        questions: what was recorded.
        beta: β of our own rule, as configured.
        missing_limit: the share of tokens without log-probs that free energy bears.
        seed: of the bootstrap.
        fitted: where a rule fitted to other questions is right, to stand beside them.
    """
    argmin = "fep β=inf (argmin)"
    settings = {f"fep β={beta:g}": Fusion("fep", beta, missing_limit), argmin: Fusion("fep")}
    settings |= {name: Fusion(name, missing_limit=missing_limit) for name in sorted(RULES.names()) if name != "fep"}
    right = {name: right_by(questions, fusion) for name, fusion in settings.items()}
    if fitted is not None:
        right["fep fitted"] = fitted
    right["mean candidate"] = np.array([np.mean(q.correct) for q in questions])
    return [
        RuleResult(
            name,
            bootstrap_mean(each, seed),
            bootstrap_mean(each - right["majority"], seed),
            bootstrap_mean(each - right[argmin], seed),
        )
        for name, each in right.items()
    ]


def oracle(questions: Sequence[Question]) -> float:
    """The share of questions with a right candidate: no rule can do better."""
    return float(np.mean([any(q.correct) for q in questions]))


def stop_early(
    questions: Sequence[Question], fusion: Fusion, confidence: float, first_look: int = 1, seed: int = 0
) -> StoppingResult:
    """Slow samples one by one, until the answer is settled (SPEC 5.12); the fast answer is there in any case."""
    stopping, looked, all_slow, right = Stopping(confidence), [], [], []
    for question in questions:
        roles = [candidate.role for candidate in question.candidates]
        slow = [i for i, role in enumerate(roles) if role is Role.SLOW]
        samples = [question.candidates[i] for i in slow]
        taken = next(
            (k for k in range(first_look, len(slow)) if stopping.settled(fusion.votes(samples[:k]), len(slow) - k)),
            len(slow),
        )
        seen = sorted({*range(len(roles))} - {*slow[taken:]})
        winner = fusion.choose([question.candidates[i] for i in seen]).winner
        looked.append(taken)
        all_slow.append(len(slow))
        right.append(question.correct[seen[winner]])
    return StoppingResult(
        confidence=confidence,
        first_look=first_look,
        slow_calls=float(np.mean(looked)),
        saved=1 - sum(looked) / max(1, sum(all_slow)),
        accuracy=float(np.mean(right)),
        against_all=bootstrap_mean(np.array(right, dtype=float) - right_by(questions, fusion), seed),
    )


def right_by(questions: Sequence[Question], fusion: Fusion) -> Array:
    """1 where the candidate that a rule chooses is right, else 0."""
    return np.array([q.correct[fusion.choose(q.candidates).winner] for q in questions], dtype=np.float64)


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
