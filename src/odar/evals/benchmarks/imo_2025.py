"""IMO 2025: six proof problems, scored by a verifier against a checklist."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from odar.errors import InputError
from odar.evals.benchmarks.base import About, Task
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


_DATA = Dataset(
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


@dataclass(frozen=True, slots=True)
class ProofBenchmark:
    """Problems whose score is the share of a checklist that a verifier confirms."""

    data: Dataset = _DATA
    verifier: Verifier | None = None
    name: str = _DATA.name
    category: str = _DATA.category
    metric: str = _DATA.metric

    @property
    def about(self) -> About:
        """Source, size, licence."""
        return self.data.about

    def with_verifier(self, verifier: Verifier) -> ProofBenchmark:
        """The same benchmark, scored by this model."""
        return replace(self, verifier=verifier)

    def load(self, folder: Path | None = None) -> Iterator[Task]:
        """The problems."""
        return self.data.load(folder)

    def score(self, task: Task, response: str, answer: str) -> float:
        """The proof score of the whole response.

        Raises:
            InputError: no verifier was given.
        """
        if self.verifier is None:
            return self.data.score(task, response, answer)
        return proof_score(task.gold["problem"], task.gold["checklist"], response, self.verifier)


BENCHMARK = ProofBenchmark()
