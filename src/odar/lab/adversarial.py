"""Adversarial rewrites: simple questions that look hard, hard ones that look simple (the paper's robustness table).

Complexity injection puts a question into learned prose, with markers of difficulty and an unrelated aside.
Simplicity masking writes formulas in words, removes such markers, and calls the question easy. Both keep the
question's meaning, so the gold answer stays the same. Random choices depend on the id of the task alone. Sets that
check the wording of a response (IFEval) are not rewritten: their answers depend on the wording of the question.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from importlib import resources

from odar.lab.recording.schema import Task

Rewrite = Callable[[Task], Task]

WORDING_SCORED = ("ifeval", "livebench")
"""Benchmarks that check the wording of a response."""
_WORDS = tomllib.loads(resources.files("odar.lab").joinpath("rewrites.toml").read_text("utf-8"))
_UNSPOKEN = re.compile(r"[\\_{}&^]")
_FORMULA = re.compile(
    r"\$\$?(?![\s$])([^$]+?)(?<!\s)\$\$?(?!\d)|\\\[(.+?)\\\]|\\\((.+?)\\\)", re.DOTALL
)  # not "$5 and $6"
_KEPT = re.compile(r"(```.*?```|\[asy\].*?\[/asy\]|\"[^\"\n]*\"|\n\s*\(?[A-Z][.)]\s.*$)", re.DOTALL)


def inject_complexity(task: Task) -> Task:
    """The task with its question unchanged, between sentences that look hard."""
    pick = _random_for("injection", task)
    frame = pick.choice(_WORDS["frames"]).format(topic=pick.choice(_WORDS["topics"]))
    text = f"{frame}\n\n{task.query.text}\n\n{pick.choice(_WORDS['asides'])} {pick.choice(_WORDS['closings'])}"
    return _with_text(task, text)


def mask_complexity(task: Task) -> Task:
    """The task with formulas in words, everyday words for technical ones, and a casual opening.

    Code, quotations and lettered options are kept, because an answer may have to repeat them.
    """
    parts = _KEPT.split(task.query.text)
    parts[::2] = map(_simplify, parts[::2])  # odd positions hold what is kept
    text = "".join(parts)
    return _with_text(task, f"{_random_for('masking', task).choice(_WORDS['openings'])} {text}")


ATTACKS: dict[str, Rewrite] = {"injection": inject_complexity, "masking": mask_complexity}


def _with_text(task: Task, text: str) -> Task:
    return replace(task, query=replace(task.query, text=text))


def _random_for(attack: str, task: Task) -> random.Random:
    return random.Random(f"{attack} 0 {task.id}")  # noqa: S311 - a stable choice, not a secret


def _simplify(text: str) -> str:
    spoken = _FORMULA.sub(lambda match: _spell_out(next(group for group in match.groups() if group)), text)
    for pattern, word in _WORDS["plain_words"]:
        spoken = re.sub(rf"\b(?:{pattern})(?!\w)", _in_case_of(word), spoken, flags=re.IGNORECASE)
    return spoken


def _in_case_of(word: str) -> Callable[[re.Match[str]], str]:
    return lambda match: word[:1].upper() + word[1:] if match[0][:1].isupper() else word


def _spell_out(formula: str) -> str:
    """The formula in words; unchanged if it has LaTeX that the table does not cover."""
    spoken = formula
    for pattern, words in _WORDS["spoken"]:
        spoken = re.sub(pattern, words, spoken)
    return f"${formula}$" if _UNSPOKEN.search(spoken) else " ".join(spoken.split())
