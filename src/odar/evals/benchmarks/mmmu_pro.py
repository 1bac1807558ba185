"""MMMU-Pro: college subjects, pictures between the words, ten options."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from odar.evals.benchmarks.base import Task
from odar.evals.benchmarks.dataset import Dataset, Place
from odar.evals.benchmarks.files import Row
from odar.evals.benchmarks.hub import Hub
from odar.evals.benchmarks.lettered import score_choice
from odar.evals.benchmarks.options import ask, choices_gold, picture
from odar.types import Query

_IMAGES = 7
_MARK = re.compile(r"<image (\d)>")


def _tasks(row: Row, place: Place) -> Iterator[Task]:
    """`<image 2>` in the text stands for the second picture: pictures keep that order and the marks stay."""
    options = [str(option) for option in ast.literal_eval(row["options"])]
    text = ask(row["question"], options)
    marks = sorted({int(number) for number in _MARK.findall(text)})
    shown = marks or range(1, _IMAGES + 1)
    images = tuple(image for number in shown for image in picture(row.get(f"image_{number}")))
    renamed = _MARK.sub(lambda match: f"<image {marks.index(int(match[1])) + 1}>", text)
    yield Task(row["id"], Query(renamed, images), choices_gold(row["answer"], options), row["subject"])


BENCHMARK = Dataset(
    name="mmmu_pro",
    category="Multimodal",
    metric="accuracy",
    hub=Hub("MMMU/MMMU_Pro", ("standard (10 options)",)),
    tasks=_tasks,
    scorer=score_choice,
    size=1_730,
    licence="Apache-2.0",
    note="the paper's table says 1,500; the published set has 1,730",
)
