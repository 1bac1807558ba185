"""SWE-bench: issues of Python projects; a patch counts where the project's tests then pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from odar.errors import InputError
from odar.evals.benchmarks.base import About, Task
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


_DATA = Dataset(
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


@dataclass(frozen=True, slots=True)
class SweBench:
    """Issues whose score is read from the harness's report."""

    report: Report | None = None
    name: str = _DATA.name
    category: str = _DATA.category
    metric: str = _DATA.metric

    @property
    def about(self) -> About:
        """Source, size, licence."""
        return _DATA.about

    def with_report(self, path: Path) -> SweBench:
        """The same benchmark, scored by a report of the harness."""
        return replace(self, report=read_report(path))

    def load(self, folder: Path | None = None) -> Iterator[Task]:
        """The issues."""
        return _DATA.load(folder)

    def score(self, task: Task, response: str, answer: str) -> float:
        """Whether the harness found the issue resolved.

        Raises:
            InputError: no report was given, or it does not name this issue.
        """
        return _DATA.score(task, response, answer) if self.report is None else self.report.passed(task.gold)


BENCHMARK = SweBench()
