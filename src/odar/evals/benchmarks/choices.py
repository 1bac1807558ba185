"""Benchmarks of lettered options, with or without a picture."""

from __future__ import annotations

import ast
import random
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from odar.evals.benchmarks.base import Dataset, Place, Row, Task
from odar.evals.scorers.text import LETTERS, choice
from odar.inputs import recognise
from odar.types import Image, Query


def ask(question: str, options: Sequence[str], before: str = "") -> str:
    """A question with lettered options.

    >>> print(ask("Which is red?", ["the sky", "blood"]))
    Which is red?
    <BLANKLINE>
    A. the sky
    B. blood
    <BLANKLINE>
    Answer with the letter of the right option.
    """
    listed = "\n".join(f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False))
    parts = (before.strip(), question.strip(), listed, "Answer with the letter of the right option.")
    return "\n\n".join(part for part in parts if part)


def shuffled(right: Sequence[str], wrong: Sequence[str], key: str) -> tuple[list[str], list[int]]:
    """All options in an order that depends on the key alone, and where the right ones are.

    >>> shuffled(["Paris"], ["Rome", "Oslo"], "q1") == shuffled(["Paris"], ["Rome", "Oslo"], "q1")
    True
    """
    options = [*right, *wrong]
    order = list(range(len(options)))
    random.Random(key).shuffle(order)  # noqa: S311 - a stable order, not a secret
    return [options[i] for i in order], [place for place, i in enumerate(order) if i < len(right)]


def choices_gold(letter: str, options: Sequence[str]) -> dict[str, Any]:
    """The gold of a multiple-choice task: the right letter, and the options for answers that quote one."""
    return {"letter": letter, "options": list(options)}


def picture(value: Any) -> tuple[Image, ...]:
    """A Parquet image field as part of a query; nothing where the row has none."""
    data = value.get("bytes") if isinstance(value, dict) else None
    return (recognise(data, "a picture of this row"),) if data else ()


def choice_task(name: str, question: str, choices: Mapping[str, Sequence[str]], key: str) -> Task:
    """A task of Ai2's layout, whose choices have `text` and `label`.

    Some rows number their options: the place of the key counts, not its name.
    """
    options, letter = choices["text"], LETTERS[choices["label"].index(key)]
    return Task(name, Query(ask(question, options)), choices_gold(letter, options))


def score_choice(task: Task, response: str, answer: str) -> float:
    """Whether the answer names the right option; its gold is that of `choices_gold`."""
    return choice(task.gold["letter"], answer, task.gold["options"])


def _arc_challenge_tasks(row: Row, place: Place) -> Iterator[Task]:
    yield choice_task(row["id"], row["question"], row["choices"], row["answerKey"])


ARC_CHALLENGE = Dataset.named("arc_challenge", _arc_challenge_tasks, score_choice)


def _openbookqa_tasks(row: Row, place: Place) -> Iterator[Task]:
    yield choice_task(row["id"], row["question_stem"], row["choices"], row["answerKey"])


OPENBOOKQA = Dataset.named("openbookqa", _openbookqa_tasks, score_choice)


def _mmlu_pro_tasks(row: Row, place: Place) -> Iterator[Task]:
    options = row["options"]
    yield Task(
        str(row["question_id"]),
        Query(ask(row["question"], options)),
        choices_gold(row["answer"], options),
        row["category"],
    )


MMLU_PRO = Dataset.named("mmlu_pro", _mmlu_pro_tasks, score_choice)


def _gpqa_tasks(row: Row, place: Place) -> Iterator[Task]:
    """The right answer has a column of its own, so options are shuffled, by the record's id alone."""
    wrong = [row[f"Incorrect Answer {i}"].strip() for i in (1, 2, 3)]
    options, right = shuffled([row["Correct Answer"].strip()], wrong, row["Record ID"])
    minutes = [float(row[field]) for i in (1, 2) if row.get(field := f"Self-reported time (minutes)_EV_{i}")]
    yield Task(
        id=row["Record ID"],
        query=Query(ask(row["Question"], options)),
        gold=choices_gold(LETTERS[right[0]], options),
        stratum=row["High-level domain"],
        effort=statistics.mean(minutes) if minutes else None,
    )


GPQA = Dataset.named("gpqa", _gpqa_tasks, score_choice)


def _truthfulqa_tasks(row: Row, place: Place) -> Iterator[Task]:
    """The true option always comes first in the files: options are shuffled, by the question alone."""
    targets = row["mc1_targets"]
    labels = dict(zip(targets["choices"], targets["labels"], strict=True)) if "choices" in targets else targets
    right = [option for option, label in labels.items() if label]
    wrong = [option for option, label in labels.items() if not label]
    options, places = shuffled(right, wrong, row["question"])
    gold = choices_gold(LETTERS[places[0]], options)
    yield Task(f"question-{place.number}", Query(ask(row["question"], options)), gold)


TRUTHFULQA = Dataset.named("truthfulqa", _truthfulqa_tasks, score_choice)


def _scienceqa_tasks(row: Row, place: Place) -> Iterator[Task]:
    """The lecture and the solution stay out of the query: they give the answer away."""
    options = row["choices"]
    yield Task(
        id=f"test-{place.number}",
        query=Query(ask(row["question"], options, before=row["hint"] or ""), picture(row["image"])),
        gold=choices_gold(LETTERS[row["answer"]], options),
        stratum=f"{row['subject']}, {row['grade']}",
        effort=float(len(row["solution"].split())) if row.get("solution") else None,
    )


SCIENCEQA = Dataset.named("scienceqa", _scienceqa_tasks, score_choice)


def _aokvqa_tasks(row: Row, place: Place) -> Iterator[Task]:
    options = row["choices"]
    yield Task(
        id=row["question_id"],
        query=Query(ask(row["question"], options), picture(row["image"])),
        gold=choices_gold(LETTERS[row["correct_choice_idx"]], options),
        stratum="difficult" if row.get("difficult_direct_answer") else "plain",
    )


AOKVQA = Dataset.named("aokvqa", _aokvqa_tasks, score_choice)


_MMMU_PRO_IMAGES = 7
_MMMU_PRO_MARK = re.compile(r"<image (\d)>")


def _mmmu_pro_tasks(row: Row, place: Place) -> Iterator[Task]:
    """`<image 2>` in the text stands for the second picture: pictures keep that order and the marks stay."""
    options = [str(option) for option in ast.literal_eval(row["options"])]
    text = ask(row["question"], options)
    marks = sorted({int(number) for number in _MMMU_PRO_MARK.findall(text)})
    shown = marks or range(1, _MMMU_PRO_IMAGES + 1)
    images = tuple(image for number in shown for image in picture(row.get(f"image_{number}")))
    renamed = _MMMU_PRO_MARK.sub(lambda match: f"<image {marks.index(int(match[1])) + 1}>", text)
    yield Task(row["id"], Query(renamed, images), choices_gold(row["answer"], options), row["subject"])


MMMU_PRO = Dataset.named("mmmu_pro", _mmmu_pro_tasks, score_choice)
