"""LiveBench: scores by the published rule of a task, or by similarity to the ground truth (tables, new tasks)."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from odar.lab.graders.ifeval import CHECKS, check_instructions
from odar.lab.graders.mathematics import math_equal
from odar.lab.graders.text import order_similarity, similarity
from odar.policy.answers import last_boxed

_SOLUTION = re.compile(r"<solution>(.*?)(?:</solution>|$)", re.DOTALL)
_BOLD = re.compile(r"\*\*(.+?)\*\*", re.DOTALL)
_FENCED = re.compile(r"```(?:\w+)?\n(.*?)```", re.DOTALL)
_REPEATED_LETTER = re.compile(r"(?<![A-Z])([A-E])\1{2,}(?![A-Z])")
_GROUP_SIZE = 4
_boxed = partial(last_boxed, bare=True)  # LiveBench's answers are LaTeX


def ground_truth_score(task: str, gold: str, response: str, answer: str) -> float:
    """The score of a response to a question with a ground truth.

    The final answer is the content of the last <solution> tags or fenced block, else the answer that ODAR parsed.

    >>> ground_truth_score("typos", "their dog", "I fixed it. <solution>So their dog barked.</solution>", "")
    1.0
    """
    stated = _SOLUTION.findall(response) or _FENCED.findall(response) or [answer or response]
    final = stated[-1].strip()
    return _GRADERS.get(task, _text_similarity)(gold, final, response)


def instruction_score(names: list[str], arguments: list[dict[str, Any]], response: str) -> float:
    """The mean of two scores: 1 if all instructions are followed, and the share of followed ones.

    Instructions that are not among IFEval's 25 are left out; with none left, the score is 0.
    """
    known = [(name, given) for name, given in zip(names, arguments, strict=True) if name in CHECKS]
    if not known:
        return 0.0
    followed = check_instructions([name for name, _ in known], [given for _, given in known], response)
    return (all(followed) + sum(followed) / len(followed)) / 2


def _text_similarity(gold: str, final: str, _: str) -> float:
    return similarity(" ".join(gold.split()), " ".join(final.split())[: 2 * len(gold) + 100])


def _typos(gold: str, final: str, _: str) -> float:
    return float(" ".join(gold.split()) in " ".join(final.split()))


def _plot_unscrambling(gold: str, final: str, response: str) -> float:
    _, tag, summary = response.rpartition("<PLOT_SUMMARY>")
    return order_similarity(gold, summary.replace("</PLOT_SUMMARY>", "") if tag else final)


def _connections(gold: str, final: str, response: str) -> float:
    """The share of groups of four that were found, in any order."""
    bold = _BOLD.findall(response)
    words = final if final.count(",") >= gold.count(",") or not bold else bold[-1]
    found = _word_groups(words)
    wanted = _word_groups(gold)
    return len(found & wanted) / len(wanted) if wanted else 0.0


def _word_groups(text: str) -> set[frozenset[str]]:
    words = [re.sub(r"[\[\]*.\n]", " ", word).strip().lower() for word in text.split(",")]
    return {frozenset(words[i : i + _GROUP_SIZE]) for i in range(0, len(words), _GROUP_SIZE)}


def _short_answer(gold: str, final: str, response: str) -> float:
    """1 if the final answer, the last bold text or the last box is the gold, a short answer or a list."""
    bold = _BOLD.findall(response)
    return float(_normalize(gold) in (_normalize(text) for text in (final, *bold[-1:], _boxed(response) or "")))


def _normalize(text: str) -> str:
    return re.sub(r"[^\w,]+", " ", text.lower()).replace(" ,", ",").replace(", ", ",").strip()


def _competition_answer(gold: str, final: str, response: str) -> float:
    """A letter is repeated (AMC), a number is at the end of the response (AIME)."""
    gold = gold.strip()
    if re.fullmatch(r"[A-E]", gold):
        repeated = _REPEATED_LETTER.findall(response)
        return float((repeated[-1] if repeated else (_boxed(response) or final).strip("()*. ")) == gold)
    stated = re.search(rf"(?<!\d){re.escape(gold)}(?!\d)", response[-50:]) is not None
    return float(stated or math_equal(gold, final))


def _algebra(gold: str, final: str, response: str) -> float:
    return math_equal(gold.strip("$"), (_boxed(response) or final).strip("$"))


def _proof_order(gold: str, final: str, _: str) -> float:
    """The edit similarity of the order of a proof's expressions, two lists of numbers."""
    wanted, given = ([int(number) for number in re.findall(r"\d{1,9}", text)] for text in (gold, final))
    return similarity(wanted, given) if given else 0.0


_GRADERS: dict[str, Callable[[str, str, str], float]] = {
    "typos": _typos,
    "plot_unscrambling": _plot_unscrambling,
    "connections": _connections,
    **dict.fromkeys(("web_of_lies_v2", "web_of_lies_v3", "zebra_puzzle", "spatial", "cta"), _short_answer),
    "math_comp": _competition_answer,
    "AMPS_Hard": _algebra,
    "olympiad": _proof_order,
}
"""Graders of the tasks with a published rule other than similarity."""
