"""SWE-bench: issues of Python projects; a patch counts where the project's tests then pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from odar.errors import InputError
from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.dataset import Dataset, Place
from odar.evals.benchmarks.files import Row
from odar.evals.benchmarks.hub import Hub
from odar.evals.scorers.swebench import Report, read_report
from odar.types import Query


def _tasks(row: Row, place: Place) -> Iterator[Task]:
    """The oracle form, whose `text` holds the issue and the files to change: one call can answer it."""
    text = row.get("text") or f"{row['problem_statement'].strip()}\n\nAnswer with a patch in unified diff format."
    yield Task(row["instance_id"], Query(text), row["instance_id"], row["repo"])


def _unscored(task: Task, response: str, answer: str) -> float:
    raise InputError(
        "swe_bench is scored by its own harness: write predictions with `odar eval score swe_bench --responses "
        "FILE --predictions OUT`, run swebench.harness.run_evaluation, then give its report with --report"
    )


@dataclass(frozen=True, slots=True)
class SweBench(Dataset):
    """Issues whose score is read from the harness's report."""

    def with_report(self, path: Path) -> SweBench:
        """The same benchmark, scored by a report of the harness; an issue it does not name is an InputError."""
        return replace(self, scorer=partial(_resolved, read_report(path)))


def _resolved(report: Report, task: Task, response: str, answer: str) -> float:
    return report.passed(task.gold)


BENCHMARK = SweBench(
    name="swe_bench",
    category="Coding",
    metric="pass@1",
    hub=Hub("princeton-nlp/SWE-bench_oracle"),
    tasks=_tasks,
    scorer=_unscored,
    size=2_294,
    licence="MIT",
    needs="a report of the SWE-bench harness",
)
