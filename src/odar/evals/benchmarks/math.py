"""MATH: competition problems in seven subjects and five levels, with worked solutions."""

from __future__ import annotations

from collections.abc import Iterator

from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.dataset import Dataset, Place, by_answer
from odar.evals.benchmarks.files import Row
from odar.evals.benchmarks.hub import Hub
from odar.evals.scorers.mathematics import math_equal
from odar.policy.answers import last_boxed
from odar.types import Query

_SUBJECTS = (
    *("algebra", "counting_and_probability", "geometry", "intermediate_algebra"),
    *("number_theory", "prealgebra", "precalculus"),
)


def _tasks(row: Row, place: Place) -> Iterator[Task]:
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


BENCHMARK = Dataset(
    name="math",
    category="Mathematics",
    metric="accuracy",
    hub=Hub("EleutherAI/hendrycks_math", _SUBJECTS),
    tasks=_tasks,
    scorer=by_answer(math_equal),
    local=("math/test.jsonl",),
    size=5_000,
    licence="MIT",
)
