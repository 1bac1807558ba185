"""IMO 2025: six proof problems, scored by a verifier against a checklist."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from odar.errors import InputError
from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.dataset import Dataset, Place
from odar.evals.benchmarks.files import Row
from odar.evals.benchmarks.hub import Hub
from odar.evals.scorers.proof import Verifier, proof_score
from odar.types import Query


def _tasks(row: Row, place: Place) -> Iterator[Task]:
    checklist = [": ".join(filter(None, (item.get("title"), item["desc"]))) for item in row["grading_scheme"]]
    yield Task(
        id=f"problem-{row['problem_idx']}",
        query=Query(f"{row['problem'].strip()}\n\nGive a complete proof."),
        gold={"problem": row["problem"], "checklist": checklist},
        meta={"points": row.get("points")},
    )


def _unscored(task: Task, response: str, answer: str) -> float:
    raise InputError("imo_2025 is scored by a verifier: give one with BENCHMARK.with_verifier(model)")


@dataclass(frozen=True, slots=True)
class ProofBenchmark(Dataset):
    """Problems whose score is the share of a checklist that a verifier confirms."""

    def with_verifier(self, verifier: Verifier) -> ProofBenchmark:
        """The same benchmark, scored by this model: the proof score of the whole response."""
        return replace(self, scorer=partial(_confirmed, verifier))


def _confirmed(verifier: Verifier, task: Task, response: str, answer: str) -> float:
    return proof_score(task.gold["problem"], task.gold["checklist"], response, verifier)


BENCHMARK = ProofBenchmark(
    name="imo_2025",
    category="Mathematics",
    metric="proof",
    hub=Hub("MathArena/imo_2025", splits=("train",)),
    tasks=_tasks,
    scorer=_unscored,
    local=("imo_2025/*.jsonl",),
    size=6,
    licence="CC-BY-NC-SA-4.0",
    needs="a verifier model at temperature 0",
    note="the paper's 100 shortlist problems with checklists are not published; these are the six of the contest",
)
