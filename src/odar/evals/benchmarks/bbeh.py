"""BIG-Bench Extra Hard: BBH's 23 skills, made hard again."""

from __future__ import annotations

from collections.abc import Iterator

from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.dataset import Dataset, Place, by_answer
from odar.evals.benchmarks.files import Row
from odar.evals.benchmarks.hub import Hub
from odar.evals.scorers.bigbench import bigbench
from odar.types import Query


def _tasks(row: Row, place: Place) -> Iterator[Task]:
    """The file of BBEH mini does not say which of the 23 tasks a row is from."""
    task = row.get("task") or ""
    yield Task(
        f"bbeh-{place.number}", Query(row["input"]), row["target"], task, meta={"mini": bool(row.get("mini", True))}
    )


BENCHMARK = Dataset(
    name="bbeh",
    category="Advanced Cognition",
    metric="accuracy",
    hub=Hub("BBEH/bbeh", splits=("train",)),
    tasks=_tasks,
    scorer=by_answer(bigbench),
    local=("bbeh/*.json",),
    size=4_520,
    licence="CC-BY-4.0",
    note="the paper's table says 1,500; the published set has 4,520, of which 460 are BBEH mini (meta.mini)",
)
