"""Benchmarks in mathematics: numbers, expressions and proofs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from odar.evals.benchmarks.base import Dataset, Place, Row, Task, by_answer
from odar.evals.benchmarks.choices import ask, picture, score_choice
from odar.evals.scorers.mathematics import Verifier, math_equal, numeric, proof_score, within
from odar.evals.scorers.text import LETTERS, exact_match
from odar.policy.answers import last_boxed
from odar.types import Query


def _gsm8k_tasks(row: Row, place: Place) -> Iterator[Task]:
    reasoning, marker, gold = row["answer"].rpartition("####")
    if not marker:
        raise ValueError("the answer has no ####")
    steps = reasoning.strip().count("\n") + 1
    yield Task(f"test-{place.number}", Query(row["question"]), gold.strip(), f"{min(steps, 8)} steps", float(steps))


GSM8K = Dataset.named("gsm8k", _gsm8k_tasks, by_answer(numeric))


def _math_tasks(row: Row, place: Place) -> Iterator[Task]:
    solution = row["solution"]
    gold = last_boxed(solution, bare=True)
    if gold is None:
        raise ValueError("the solution has no \\boxed answer")
    yield Task(
        id=f"test-{row['idx']}" if "idx" in row else str(place),
        query=Query(row["problem"]),
        gold=gold,
        stratum=f"{row['type']}, {row['level']}",
        effort=float(len(solution.split())),
    )


MATH = Dataset.named("math", _math_tasks, by_answer(math_equal))


def _mathvista_tasks(row: Row, place: Place) -> Iterator[Task]:
    options = row["choices"] or []
    precision = row.get("precision")
    if options:
        text = ask(row["question"], options)
        gold = {"letter": LETTERS[options.index(row["answer"])], "options": options}
    else:
        digits = f" with {int(precision)} decimal places" if precision and row["answer_type"] == "float" else ""
        kind = {"integer": "whole number", "float": "number", "list": "Python list"}.get(row["answer_type"], "word")
        unit = f" in {row['unit']}" if row.get("unit") else ""
        text = f"{row['question'].strip()}\n\nAnswer with a {kind}{unit}{digits}."
        gold = row["answer"]
    yield Task(
        id=str(row["pid"]),
        query=Query(text, picture(row["decoded_image"])),
        gold=gold,
        stratum=str((row.get("metadata") or {}).get("task") or row["question_type"]),
        meta={"precision": precision, "answer_type": row["answer_type"]},
    )


def _mathvista_score(task: Task, response: str, answer: str) -> float:
    if isinstance(task.gold, dict):
        return score_choice(task, response, answer)
    if task.meta["answer_type"] in ("integer", "float"):
        digits = int(task.meta["precision"] or 0)
        return within(task.gold, answer, 0.5 * 10**-digits if task.meta["answer_type"] == "float" else 0)
    return exact_match([task.gold], answer)


MATHVISTA = Dataset.named("mathvista", _mathvista_tasks, _mathvista_score)


def _imo_2025_tasks(row: Row, place: Place) -> Iterator[Task]:
    checklist = [": ".join(filter(None, (item.get("title"), item["desc"]))) for item in row["grading_scheme"]]
    yield Task(
        id=f"problem-{row['problem_idx']}",
        query=Query(f"{row['problem'].strip()}\n\nGive a complete proof."),
        gold={"problem": row["problem"], "checklist": checklist},
        meta={"points": row.get("points")},
    )


@dataclass(frozen=True, slots=True)
class ProofBenchmark(Dataset):
    """Problems whose score is the share of a checklist that a verifier confirms."""

    def with_verifier(self, verifier: Verifier) -> ProofBenchmark:
        """Return the same benchmark, scored by this model: the proof score of the whole response."""
        return self.scored_by(partial(_imo_2025_confirmed, verifier))


def _imo_2025_confirmed(verifier: Verifier, task: Task, response: str, answer: str) -> float:
    return proof_score(task.gold["problem"], task.gold["checklist"], response, verifier)


IMO_2025 = ProofBenchmark.named("imo_2025", _imo_2025_tasks)
