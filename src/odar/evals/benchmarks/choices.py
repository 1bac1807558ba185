"""Benchmarks of lettered options, with or without a picture."""

from __future__ import annotations

import ast
import random
import re
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from odar.evals.benchmarks.base import Dataset, Place, Row, Task
from odar.evals.scorers.text import LETTERS, choice
from odar.inputs import image_from_bytes
from odar.types import Image, Query


def ask(question: str, options: Sequence[str], before: str = "") -> str:
    """Return a question with lettered options."""
    listed = "\n".join(f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False))
    parts = (before.strip(), question.strip(), listed, "Answer with the letter of the right option.")
    return "\n\n".join(part for part in parts if part)


def choice_task(
    name: str,
    question: str,
    options: Sequence[str],
    letter: str,
    stratum: str = "",
    *,
    before: str = "",
    images: tuple[Image, ...] = (),
    effort: float | None = None,
) -> Task:
    """Return a multiple-choice task; its gold has the options too, for answers that quote one."""
    gold = {"letter": letter, "options": list(options)}
    return Task(name, Query(ask(question, options, before), images), gold, stratum, effort)


def score_choice(task: Task, response: str, answer: str) -> float:
    """Return whether the answer names the right option."""
    return choice(task.gold["letter"], answer, task.gold["options"])


def shuffled(right: str, wrong: Sequence[str], key: str) -> tuple[list[str], str]:
    """Return all options in an order that depends on the key alone, and the letter of the right one."""
    options, order = [right, *wrong], list(range(1 + len(wrong)))
    random.Random(key).shuffle(order)  # noqa: S311 - a stable order, not a secret
    return [options[i] for i in order], LETTERS[order.index(0)]


def picture(value: Any) -> tuple[Image, ...]:
    """Return a Parquet image field as part of a query; nothing where the row has none."""
    data = value.get("bytes") if isinstance(value, dict) else None
    return (image_from_bytes(data, "a picture of this row"),) if data else ()


def _ai2_tasks(row: Row, place: Place) -> Iterator[Task]:
    """Yield tasks; some rows number their options, so the position of the key counts, not its name."""
    question = row["question_stem"] if "question_stem" in row else row["question"]
    choices, letter = row["choices"], LETTERS[row["choices"]["label"].index(row["answerKey"])]
    yield choice_task(row["id"], question, choices["text"], letter)


ARC_CHALLENGE = Dataset.named("arc_challenge", _ai2_tasks, score_choice)
OPENBOOKQA = Dataset.named("openbookqa", _ai2_tasks, score_choice)


def _mmlu_pro_tasks(row: Row, place: Place) -> Iterator[Task]:
    yield choice_task(str(row["question_id"]), row["question"], row["options"], row["answer"], row["category"])


MMLU_PRO = Dataset.named("mmlu_pro", _mmlu_pro_tasks, score_choice)


def _gpqa_tasks(row: Row, place: Place) -> Iterator[Task]:
    """Yield tasks with options shuffled by the record's id; the right answer has its own column."""
    wrong = [row[f"Incorrect Answer {i}"].strip() for i in (1, 2, 3)]
    options, letter = shuffled(row["Correct Answer"].strip(), wrong, row["Record ID"])
    minutes = [float(row[field]) for i in (1, 2) if row.get(field := f"Self-reported time (minutes)_EV_{i}")]
    effort = statistics.mean(minutes) if minutes else None
    yield choice_task(row["Record ID"], row["Question"], options, letter, row["High-level domain"], effort=effort)


GPQA = Dataset.named("gpqa", _gpqa_tasks, score_choice)


def _truthfulqa_tasks(row: Row, place: Place) -> Iterator[Task]:
    """Yield tasks with options shuffled by the question; the files list the true option first."""
    targets = row["mc1_targets"]
    labels = dict(zip(targets["choices"], targets["labels"], strict=True)) if "choices" in targets else targets
    (right,) = (option for option, label in labels.items() if label)
    options, letter = shuffled(right, [option for option in labels if option != right], row["question"])
    yield choice_task(f"question-{place.number}", row["question"], options, letter)


TRUTHFULQA = Dataset.named("truthfulqa", _truthfulqa_tasks, score_choice)


def _scienceqa_tasks(row: Row, place: Place) -> Iterator[Task]:
    """Yield tasks without the lecture and the solution, which give the answer away."""
    yield choice_task(
        f"test-{place.number}",
        row["question"],
        row["choices"],
        LETTERS[row["answer"]],
        f"{row['subject']}, {row['grade']}",
        before=row["hint"] or "",
        images=picture(row["image"]),
        effort=float(len(row["solution"].split())) if row.get("solution") else None,
    )


SCIENCEQA = Dataset.named("scienceqa", _scienceqa_tasks, score_choice)


def _aokvqa_tasks(row: Row, place: Place) -> Iterator[Task]:
    letter, stratum = (
        LETTERS[row["correct_choice_idx"]],
        "difficult" if row.get("difficult_direct_answer") else "plain",
    )
    images = picture(row["image"])
    yield choice_task(row["question_id"], row["question"], row["choices"], letter, stratum, images=images)


AOKVQA = Dataset.named("aokvqa", _aokvqa_tasks, score_choice)


_MMMU_PRO_IMAGES = 7
_MMMU_PRO_MARK = re.compile(r"<image (\d)>")


def _mmmu_pro_tasks(row: Row, place: Place) -> Iterator[Task]:
    """`<image 2>` in the text stands for the second picture: pictures keep that order and the marks stay."""
    options = [str(option) for option in ast.literal_eval(row["options"])]
    marks = sorted({int(number) for number in _MMMU_PRO_MARK.findall(ask(row["question"], options))})
    shown = marks or range(1, _MMMU_PRO_IMAGES + 1)
    images = tuple(image for number in shown for image in picture(row.get(f"image_{number}")))
    question, *renamed = (
        _MMMU_PRO_MARK.sub(lambda match: f"<image {marks.index(int(match[1])) + 1}>", text)
        for text in (row["question"], *options)
    )
    yield choice_task(row["id"], question, renamed, row["answer"], row["subject"], images=images)


MMMU_PRO = Dataset.named("mmmu_pro", _mmmu_pro_tasks, score_choice)
