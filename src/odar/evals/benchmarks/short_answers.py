"""Benchmarks with short answers: yes or no, spans of a text, free text, BIG-Bench, grids."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from odar.evals.benchmarks.base import About, Dataset, Place, Row, Task, by_answer
from odar.evals.scorers.mathematics import math_equal
from odar.evals.scorers.text import bigbench, chosen, exact_match, f1, grid_match, show, verdict
from odar.inputs import image_from_bytes
from odar.recording.questions import QuestionSet, starter_questions
from odar.types import Image, Query


def read_and_ask(paragraphs: Sequence[tuple[str, str]], question: str) -> str:
    """Titled paragraphs, then the question."""
    read = [f"{title.strip()}\n{text.strip()}" for title, text in paragraphs]
    return "\n\n".join([*read, f"Question: {question.strip()}", "Answer in as few words as possible."])


def _boolq_tasks(row: Row, place: Place) -> Iterator[Task]:
    text = f"{row['passage'].strip()}\n\nQuestion: {row['question'].strip().rstrip('?')}?\n\nAnswer with yes or no."
    gold = bool(row["answer"])
    yield Task(f"validation-{place.number}", Query(text), gold, "yes" if gold else "no")


BOOLQ = Dataset.named("boolq", _boolq_tasks, by_answer(verdict))


def _strategyqa_tasks(row: Row, place: Place) -> Iterator[Task]:
    """Yield tasks; the official file has the steps of each question, the hub's copy does not."""
    steps = row.get("decomposition") or []
    yield Task(
        id=row["qid"],
        query=Query(f"{row['question'].strip()}\n\nAnswer with yes or no."),
        gold=bool(row["answer"]),
        stratum="yes" if row["answer"] else "no",
        effort=float(len(steps)) if steps else None,
    )


STRATEGYQA = Dataset.named("strategyqa", _strategyqa_tasks, by_answer(verdict))


def _hotpotqa_tasks(row: Row, place: Place) -> Iterator[Task]:
    context = row["context"]
    paragraphs = [
        (title, "".join(sentences)) for title, sentences in zip(context["title"], context["sentences"], strict=True)
    ]
    yield Task(
        id=row["id"],
        query=Query(read_and_ask(paragraphs, row["question"])),
        gold=[row["answer"]],
        stratum=f"{row['type']}, {row['level']}",
    )


HOTPOTQA = Dataset.named("hotpotqa", _hotpotqa_tasks, by_answer(f1))


def _musique_tasks(row: Row, place: Place) -> Iterator[Task]:
    paragraphs = [(paragraph["title"], paragraph["paragraph_text"]) for paragraph in row["paragraphs"]]
    hops = len(row["question_decomposition"])
    yield Task(
        id=row["id"],
        query=Query(read_and_ask(paragraphs, row["question"])),
        gold=[row["answer"], *(row["answer_aliases"] or [])],
        stratum=f"{hops} hops",
        effort=float(hops),
    )


MUSIQUE = Dataset.named("musique", _musique_tasks, by_answer(f1))


def _truthfulqa_text_tasks(row: Row, place: Place) -> Iterator[Task]:
    """Yield tasks from the hub's columns, or from those of the authors' CSV file."""
    row = {name.lower().replace(" ", "_"): value for name, value in row.items()}
    gold = {kind: _references(row[f"{kind}_answers"]) for kind in ("correct", "incorrect")}
    yield Task(f"question-{place.number}", Query(row["question"].strip()), gold, row.get("category", ""))


def _references(value: str | list[str]) -> list[str]:
    parts = value.split(";") if isinstance(value, str) else value
    return [part.strip() for part in parts if part.strip()]


def _truthfulqa_text_score(task: Task, response: str, answer: str) -> float:
    """More words in common with a correct reference than with any incorrect one: the authors' ROUGE-1 accuracy."""
    return float(f1(task.gold["correct"], answer) > f1(task.gold["incorrect"], answer))


TRUTHFULQA_TEXT = Dataset.named("truthfulqa_text", _truthfulqa_text_tasks, _truthfulqa_text_score)


_HLE_OPTION = re.compile(r"^\(?([A-Z])[.):]\s", re.MULTILINE)


def _hle_tasks(row: Row, place: Place) -> Iterator[Task]:
    gold = {
        "answer": row["answer"],
        "type": row["answer_type"],
        "options": len(set(_HLE_OPTION.findall(row["question"]))),
    }
    yield Task(row["id"], Query(row["question"], _hle_image(row.get("image"))), gold, row["category"])


def _hle_image(uri: str | None) -> tuple[Image, ...]:
    """Pictures come as data URIs; most questions have an empty one."""
    _, comma, data = (uri or "").partition(",")
    return (image_from_bytes(b64decode(data), "a picture of this row"),) if comma else ()


def _hle_score(task: Task, response: str, answer: str) -> float:
    gold = task.gold["answer"]
    if task.gold["type"] == "multipleChoice":
        return float(chosen(answer, [""] * max(task.gold["options"], 5)) == gold.strip("(). ").upper())
    return max(exact_match([gold], answer), math_equal(gold, answer))


HLE = Dataset.named("hle", _hle_tasks, _hle_score)


def _bbh_tasks(row: Row, place: Place) -> Iterator[Task]:
    yield Task(str(place), Query(row["input"]), row["target"], place.group)


BBH = Dataset.named("bbh", _bbh_tasks, by_answer(bigbench))


def _bbeh_tasks(row: Row, place: Place) -> Iterator[Task]:
    """Yield tasks; the file of BBEH mini does not name the task of a row."""
    task = row.get("task") or ""
    yield Task(
        f"bbeh-{place.number}", Query(row["input"]), row["target"], task, meta={"mini": bool(row.get("mini", True))}
    )


BBEH = Dataset.named("bbeh", _bbeh_tasks, by_answer(bigbench))


def _arc_agi_2_tasks(row: Row, place: Place) -> Iterator[Task]:
    """Yield a task for every test input of a puzzle, as the official harness asks them."""
    examples = row["train"] if "train" in row else row["fewshots"]
    tests = row["test"] if "test" in row else row["question"]
    puzzle = row.get("id") or f"puzzle-{place.number}"
    shown = "\n\n".join(
        f"Example {number}, input:\n{show(pair['input'])}\n\nExample {number}, output:\n{show(pair['output'])}"
        for number, pair in enumerate(examples, start=1)
    )
    for number, test in enumerate(tests, start=1):
        text = (
            "Every example turns an input grid into an output grid by the same rule; a cell is a digit that stands "
            f"for a colour.\n\n{shown}\n\nTest input:\n{show(test['input'])}\n\n"
            "Write the output grid of the test input as rows of digits. You may give two attempts in a row."
        )
        yield Task(f"{puzzle}-{number}", Query(text), test["output"], puzzle, meta={"outputs": len(tests)})


def _arc_agi_2_score(task: Task, response: str, answer: str) -> float:
    return grid_match(task.gold, response or answer)


ARC_AGI_2 = Dataset.named("arc_agi_2", _arc_agi_2_tasks, _arc_agi_2_score)


_STARTER_ABOUT = About("shipped:odar/data/starter.jsonl", 236, "Apache-2.0", note="our own, not in the paper")


@dataclass(frozen=True, slots=True)
class Starter(QuestionSet):
    """The shipped questions, scored by equivalence with any accepted answer."""

    name: str = "starter"
    category: str = "Starter"
    about: About = _STARTER_ABOUT

    def load(self, folder: Path | None = None) -> Iterator[Task]:
        """Iterate over the questions; the folder is not used."""
        yield from starter_questions()


STARTER = Starter()
"""Starter: the 236 original questions over eight domains that ship with ODAR. Needs nothing."""
