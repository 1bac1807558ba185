"""Humanity's Last Exam: questions at the edge of what experts know, some with a picture."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator

from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.dataset import Dataset, Place
from odar.evals.benchmarks.files import Row
from odar.evals.benchmarks.hub import Hub
from odar.evals.scorers.choice import chosen
from odar.evals.scorers.mathematics import math_equal
from odar.evals.scorers.spans import exact_match
from odar.images import recognise
from odar.types import Image, Query

_OPTION = re.compile(r"^\(?([A-Z])[.):]\s", re.MULTILINE)


def _tasks(row: Row, place: Place) -> Iterator[Task]:
    gold = {
        "answer": row["answer"],
        "type": row["answer_type"],
        "options": len(set(_OPTION.findall(row["question"]))),
    }
    yield Task(row["id"], Query(row["question"], _image(row.get("image"))), gold, row["category"])


def _image(uri: str | None) -> tuple[Image, ...]:
    """Pictures come as data URIs; most questions have an empty one."""
    _, comma, data = (uri or "").partition(",")
    return (recognise(b64decode(data), "a picture of this row"),) if comma else ()


def _score(task: Task, response: str, answer: str) -> float:
    gold = task.gold["answer"]
    if task.gold["type"] == "multipleChoice":
        return float(chosen(answer, [""] * max(task.gold["options"], 5)) == gold.strip("(). ").upper())
    return max(exact_match([gold], answer), math_equal(gold, answer))


BENCHMARK = Dataset(
    name="hle",
    category="Advanced Cognition",
    metric="accuracy",
    hub=Hub("cais/hle", files=("data/test-*.parquet",), gated=True),
    tasks=_tasks,
    scorer=_score,
    size=2_500,
    licence="MIT",
    note="the first release had 3,000; the official judge is a model, here short answers must match or be equal",
)
