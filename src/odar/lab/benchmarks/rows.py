"""How the rows of each benchmark become tasks, and graders that need more than the gold and the answer.

A function that makes tasks takes a row, its config or file, and its number there: some rows have no id.
"""

from __future__ import annotations

import ast
import random
import re
import statistics
from base64 import b64decode
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from odar.inputs import image_from_bytes
from odar.lab.graders.ifeval import CHECKS, check_instructions
from odar.lab.graders.livebench import ground_truth_score, instruction_score
from odar.lab.graders.mathematics import math_equal, number_match
from odar.lab.graders.text import (
    LETTERS,
    bigbench,
    chosen_letter,
    exact_match,
    f1,
    format_grid,
    grid_match,
    yes_no_match,
)
from odar.lab.recording.schema import Grader, Task
from odar.policy.answers import last_boxed
from odar.types import Image, Query

Row = dict[str, Any]
MakeTasks = Callable[[Row, str, int], Task | list[Task]]


def question_with_options(question: str, options: Sequence[str], before: str = "") -> str:
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
    """A question with lettered options; its gold includes them, for answers that quote one."""
    gold = {"letter": letter, "options": list(options)}
    return Task(name, Query(question_with_options(question, options, before), images), gold, stratum, effort)


def score_choice(task: Task, response: str, answer: str) -> float:
    return float(chosen_letter(answer, task.gold["options"]) == task.gold["letter"])


def shuffle_options(right: str, wrong: Sequence[str], key: str) -> tuple[list[str], str]:
    """Options in an order that depends on the key alone, and the letter of the right one."""
    options = [right, *wrong]
    order = list(range(1 + len(wrong)))
    random.Random(key).shuffle(order)  # noqa: S311 - a stable order, not a secret
    return [options[i] for i in order], LETTERS[order.index(0)]


def images_in(value: Any) -> tuple[Image, ...]:
    data = value.get("bytes") if isinstance(value, dict) else None
    return (image_from_bytes(data, "a picture of this row"),) if data else ()


def arc_challenge(row: Row, group: str, number: int) -> Task:
    """Some rows number their options, so the position of the key counts, not its name."""
    question = row["question_stem"] if "question_stem" in row else row["question"]
    choices = row["choices"]
    letter = LETTERS[row["choices"]["label"].index(row["answerKey"])]
    return choice_task(row["id"], question, choices["text"], letter)


def mmlu_pro(row: Row, group: str, number: int) -> Task:
    return choice_task(str(row["question_id"]), row["question"], row["options"], row["answer"], row["category"])


def gpqa(row: Row, group: str, number: int) -> Task:
    """Options are shuffled by the record's id; the right answer has its own column."""
    wrong = [row[f"Incorrect Answer {i}"].strip() for i in (1, 2, 3)]
    options, letter = shuffle_options(row["Correct Answer"].strip(), wrong, row["Record ID"])
    minutes = [float(row[field]) for i in (1, 2) if row.get(field := f"Self-reported time (minutes)_EV_{i}")]
    effort = statistics.mean(minutes) if minutes else None
    return choice_task(row["Record ID"], row["Question"], options, letter, row["High-level domain"], effort=effort)


def truthfulqa(row: Row, group: str, number: int) -> Task:
    """Options are shuffled by the question; the files list the true option first."""
    targets = row["mc1_targets"]
    labels = dict(zip(targets["choices"], targets["labels"], strict=True)) if "choices" in targets else targets
    (right,) = (option for option, label in labels.items() if label)
    options, letter = shuffle_options(right, [option for option in labels if option != right], row["question"])
    return choice_task(f"question-{number}", row["question"], options, letter)


def scienceqa(row: Row, group: str, number: int) -> Task:
    """The lecture and the solution are left out, because they give the answer away."""
    return choice_task(
        f"test-{number}",
        row["question"],
        row["choices"],
        LETTERS[row["answer"]],
        f"{row['subject']}, {row['grade']}",
        before=row["hint"] or "",
        images=images_in(row["image"]),
        effort=float(len(row["solution"].split())) if row.get("solution") else None,
    )


def aokvqa(row: Row, group: str, number: int) -> Task:
    letter = LETTERS[row["correct_choice_idx"]]
    images = images_in(row["image"])
    stratum = "difficult" if row.get("difficult_direct_answer") else "plain"
    return choice_task(row["question_id"], row["question"], row["choices"], letter, stratum, images=images)


_MMMU_PRO_IMAGES = 7
_MMMU_PRO_MARK = re.compile(r"<image (\d)>")


def mmmu_pro(row: Row, group: str, number: int) -> Task:
    """Marks such as `<image 2>` in the texts are renumbered in the order of the images."""
    options = [str(option) for option in ast.literal_eval(row["options"])]
    marks = sorted(
        {int(number) for number in _MMMU_PRO_MARK.findall(question_with_options(row["question"], options))}
    )
    shown = marks or range(1, _MMMU_PRO_IMAGES + 1)
    images = tuple(image for number in shown for image in images_in(row.get(f"image_{number}")))
    question, *renamed = (
        _MMMU_PRO_MARK.sub(lambda match: f"<image {marks.index(int(match[1])) + 1}>", text)
        for text in (row["question"], *options)
    )
    return choice_task(row["id"], question, renamed, row["answer"], row["subject"], images=images)


def gsm8k(row: Row, group: str, number: int) -> Task:
    """The worked solution ends in the number, after ####."""
    reasoning, marker, gold = row["answer"].rpartition("####")
    if not marker:
        raise ValueError("the answer has no ####")
    steps = reasoning.strip().count("\n") + 1
    return Task(f"test-{number}", Query(row["question"]), gold.strip(), f"{min(steps, 8)} steps", float(steps))


def math(row: Row, group: str, number: int) -> Task:
    """The worked solution ends in a \\boxed answer."""
    solution = row["solution"]
    gold = last_boxed(solution, bare=True)
    if gold is None:
        raise ValueError("the solution has no \\boxed answer")
    return Task(
        id=f"test-{row['idx']}" if "idx" in row else f"{group}-{number}",
        query=Query(row["problem"]),
        gold=gold,
        stratum=f"{row['type']}, {row['level']}",
        effort=float(len(solution.split())),
    )


def mathvista(row: Row, group: str, number: int) -> Task:
    """The gold depends on the type of answer: options, or a value and its precision."""
    options = row["choices"] or []
    precision = row.get("precision")
    if options:
        text = question_with_options(row["question"], options)
        gold = {"letter": LETTERS[options.index(row["answer"])], "options": options}
    else:
        digits = f" with {int(precision)} decimal places" if precision and row["answer_type"] == "float" else ""
        kind = {"integer": "whole number", "float": "number", "list": "Python list"}.get(row["answer_type"], "word")
        unit = f" in {row['unit']}" if row.get("unit") else ""
        text = f"{row['question'].strip()}\n\nAnswer with a {kind}{unit}{digits}."
        gold = {"answer": row["answer"], "type": row["answer_type"], "precision": precision}
    return Task(
        id=str(row["pid"]),
        query=Query(text, images_in(row["decoded_image"])),
        gold=gold,
        stratum=str((row.get("metadata") or {}).get("task") or row["question_type"]),
    )


def score_mathvista(task: Task, response: str, answer: str) -> float:
    gold = task.gold
    if "letter" in gold:
        return score_choice(task, response, answer)
    if gold["type"] in ("integer", "float"):
        tolerance = 0.5 * 10 ** -int(gold["precision"] or 0) if gold["type"] == "float" else 0
        return number_match(gold["answer"], answer, tolerance)
    return exact_match([gold["answer"]], answer)


def imo_2025(row: Row, group: str, number: int) -> Task:
    """The grading scheme is the checklist."""
    checklist = [": ".join(filter(None, (item.get("title"), item["desc"]))) for item in row["grading_scheme"]]
    return Task(
        id=f"problem-{row['problem_idx']}",
        query=Query(f"{row['problem'].strip()}\n\nGive a complete proof."),
        gold={"problem": row["problem"], "checklist": checklist},
    )


def question_with_paragraphs(paragraphs: Sequence[tuple[str, str]], question: str) -> str:
    read = [f"{title.strip()}\n{text.strip()}" for title, text in paragraphs]
    return "\n\n".join([*read, f"Question: {question.strip()}", "Answer in as few words as possible."])


def boolq(row: Row, group: str, number: int) -> Task:
    text = f"{row['passage'].strip()}\n\nQuestion: {row['question'].strip().rstrip('?')}?\n\nAnswer with yes or no."
    gold = bool(row["answer"])
    return Task(f"validation-{number}", Query(text), gold, "yes" if gold else "no")


def strategyqa(row: Row, group: str, number: int) -> Task:
    """The official file has the steps of each question, the hub's copy does not."""
    steps = row.get("decomposition") or []
    return Task(
        id=row["qid"],
        query=Query(f"{row['question'].strip()}\n\nAnswer with yes or no."),
        gold=bool(row["answer"]),
        stratum="yes" if row["answer"] else "no",
        effort=float(len(steps)) if steps else None,
    )


def hotpotqa(row: Row, group: str, number: int) -> Task:
    context = row["context"]
    paragraphs = [
        (title, "".join(sentences)) for title, sentences in zip(context["title"], context["sentences"], strict=True)
    ]
    return Task(
        id=row["id"],
        query=Query(question_with_paragraphs(paragraphs, row["question"])),
        gold=[row["answer"]],
        stratum=f"{row['type']}, {row['level']}",
    )


def musique(row: Row, group: str, number: int) -> Task:
    paragraphs = [(paragraph["title"], paragraph["paragraph_text"]) for paragraph in row["paragraphs"]]
    hops = len(row["question_decomposition"])
    return Task(
        id=row["id"],
        query=Query(question_with_paragraphs(paragraphs, row["question"])),
        gold=[row["answer"], *(row["answer_aliases"] or [])],
        stratum=f"{hops} hops",
        effort=float(hops),
    )


def truthfulqa_text(row: Row, group: str, number: int) -> Task:
    """From the hub's columns, or from those of the authors' CSV file."""
    row = {name.lower().replace(" ", "_"): value for name, value in row.items()}
    gold = {}
    for kind in ("correct", "incorrect"):
        given = row[f"{kind}_answers"]
        answers = given.split(";") if isinstance(given, str) else given
        gold[kind] = [answer.strip() for answer in answers if answer.strip()]
    return Task(f"question-{number}", Query(row["question"].strip()), gold, row.get("category", ""))


def score_truthfulqa_text(task: Task, response: str, answer: str) -> float:
    """1 if the answer is closer to a correct reference than to any incorrect one (the authors' ROUGE-1)."""
    return float(f1(task.gold["correct"], answer) > f1(task.gold["incorrect"], answer))


_HLE_OPTION = re.compile(r"^\(?([A-Z])[.):]\s", re.MULTILINE)


def hle(row: Row, group: str, number: int) -> Task:
    gold = {
        "answer": row["answer"],
        "type": row["answer_type"],
        "options": len(set(_HLE_OPTION.findall(row["question"]))),
    }
    _, _, picture = (row.get("image") or "").partition(",")  # a data URI, empty for most questions
    return Task(row["id"], Query(row["question"], images_in({"bytes": b64decode(picture)})), gold, row["category"])


def score_hle(task: Task, response: str, answer: str) -> float:
    gold = task.gold["answer"]
    if task.gold["type"] == "multipleChoice":
        return float(chosen_letter(answer, [""] * max(task.gold["options"], 5)) == gold.strip("(). ").upper())
    return max(exact_match([gold], answer), math_equal(gold, answer))


def bbh(row: Row, group: str, number: int) -> Task:
    """The stratum is the file."""
    return Task(f"{group}-{number}", Query(row["input"]), row["target"], group)


def bbeh(row: Row, group: str, number: int) -> Task:
    """The file of BBEH mini does not name the task of a row."""
    return Task(f"bbeh-{number}", Query(row["input"]), row["target"], row.get("task") or "")


def arc_agi_2(row: Row, group: str, number: int) -> list[Task]:
    """A task for every test input of a puzzle, as the official harness asks them."""
    examples = row["train"] if "train" in row else row["fewshots"]
    tests = row["test"] if "test" in row else row["question"]
    puzzle = row.get("id") or f"puzzle-{number}"
    shown = "\n\n".join(
        f"Example {number}, {side}:\n{format_grid(pair[side])}"
        for number, pair in enumerate(examples, start=1)
        for side in ("input", "output")
    )
    return [
        Task(
            id=f"{puzzle}-{number}",
            query=Query(
                "Every example turns an input grid into an output grid by the same rule; a cell is a digit that "
                f"stands for a colour.\n\n{shown}\n\nTest input:\n{format_grid(test['input'])}\n\n"
                "Write the output grid of the test input as rows of digits. You may give two attempts in a row."
            ),
            gold=test["output"],
            stratum=puzzle,
        )
        for number, test in enumerate(tests, start=1)
    ]


def score_grid(task: Task, response: str, answer: str) -> float:
    return grid_match(task.gold, response or answer)


def ifeval(row: Row, group: str, number: int) -> Task:
    names = row["instruction_id_list"]
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        raise ValueError(f"unknown instructions {unknown}")
    gold = {"instructions": names, "arguments": _arguments(row)}
    return Task(str(row["key"]), Query(row["prompt"]), gold, f"{len(names)} instruction{'s' * (len(names) > 1)}")


def _arguments(row: Row) -> list[dict[str, Any]]:
    """The hub's file has every argument for every instruction."""
    return [{name: each for name, each in (given or {}).items() if each is not None} for given in row["kwargs"]]


def score_ifeval(task: Task, response: str, answer: str) -> float:
    """1 if the whole response follows every instruction (prompt-level strict), else 0."""
    return float(all(check_instructions(task.gold["instructions"], task.gold["arguments"], response)))


def livebench(row: Row, group: str, number: int) -> list[Task]:
    """Empty for questions that a later release removed."""
    if row.get("livebench_removal_date"):
        return []
    task = row.get("task") or row["category"]
    gold: dict[str, Any] = {"task": task, "truth": row.get("ground_truth")}
    if row.get("instruction_id_list"):
        gold |= {"instructions": row["instruction_id_list"], "arguments": _arguments(row)}
    return [Task(row["question_id"], Query(row["turns"][0]), gold, f"{row['category']}, {task}")]


def score_livebench(task: Task, response: str, answer: str) -> float:
    if "instructions" in task.gold:
        return instruction_score(task.gold["instructions"], task.gold["arguments"], response)
    return ground_truth_score(task.gold["task"], task.gold["truth"], response, answer)


def swe_bench(row: Row, group: str, number: int) -> Task:
    """The oracle form: `text` holds the issue and the files to change."""
    text = row.get("text") or f"{row['problem_statement'].strip()}\n\nAnswer with a patch in unified diff format."
    return Task(row["instance_id"], Query(text), row["instance_id"], row["repo"])


def score_answer(compare: Callable[[Any, str], float], task: Task, response: str, answer: str) -> float:
    """Compare only the gold with the answer; a `partial` of it is a grader that can be pickled, for Ray."""
    return compare(task.gold, answer)


TASKS_AND_GRADERS: dict[str, tuple[MakeTasks, Grader | None]] = {
    "math": (math, partial(score_answer, math_equal)),
    "gsm8k": (gsm8k, partial(score_answer, number_match)),
    "imo_2025": (imo_2025, None),
    "mathvista": (mathvista, score_mathvista),
    "arc_challenge": (arc_challenge, score_choice),
    "openbookqa": (arc_challenge, score_choice),
    "boolq": (boolq, partial(score_answer, yes_no_match)),
    "strategyqa": (strategyqa, partial(score_answer, yes_no_match)),
    "mmlu_pro": (mmlu_pro, score_choice),
    "gpqa": (gpqa, score_choice),
    "hotpotqa": (hotpotqa, partial(score_answer, f1)),
    "musique": (musique, partial(score_answer, f1)),
    "scienceqa": (scienceqa, score_choice),
    "aokvqa": (aokvqa, score_choice),
    "mmmu_pro": (mmmu_pro, score_choice),
    "bbh": (bbh, partial(score_answer, bigbench)),
    "bbeh": (bbeh, partial(score_answer, bigbench)),
    "truthfulqa": (truthfulqa, score_choice),
    "hle": (hle, score_hle),
    "swe_bench": (swe_bench, None),
    "livebench": (livebench, score_livebench),
    "ifeval": (ifeval, score_ifeval),
    "arc_agi_2": (arc_agi_2, score_grid),
    "truthfulqa_text": (truthfulqa_text, score_truthfulqa_text),
}
"""What makes tasks of the rows of each benchmark, and its grader; None if its own harness scores."""
