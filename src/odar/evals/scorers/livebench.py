"""LiveBench: one scorer a task, each by the task's published rule; similarity for what has none here."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from odar.evals.scorers.ifeval import CHECKS, follow
from odar.evals.scorers.mathematics import math_equal
from odar.evals.scorers.programs import extract_program, passes, passes_script, read_tests
from odar.evals.scorers.text import order_similarity, similarity
from odar.policy.answers import last_boxed

_SOLUTION = re.compile(r"<solution>(.*?)(?:</solution>|$)", re.DOTALL)
_BOLD = re.compile(r"\*\*(.+?)\*\*", re.DOTALL)
_FENCED = re.compile(r"```(?:\w+)?\n(.*?)```", re.DOTALL)
_REPEATED = re.compile(r"(?<![A-Z])([A-E])\1{2,}(?![A-Z])")
_GROUP = 4
_boxed = partial(last_boxed, bare=True)  # what its answers are written in is LaTeX


def livebench(task: str, gold: str, response: str, answer: str) -> float:
    """The score of a response to a question with a written ground truth.

    The final answer is what stands in the last <solution> tags, else what ODAR parsed. Tasks of the coding and the
    instruction-following category have no such truth: see `program_score` and `instruction_score`.

    >>> livebench("typos", "their dog", "I fixed it. <solution>So their dog barked.</solution>", "")
    1.0
    """
    tagged = _SOLUTION.findall(response)
    final = (tagged[-1] if tagged else answer or response).strip()
    return _SCORERS.get(task, _similar)(gold, final, response)


def program_score(question: Mapping[str, Any], response: str) -> float:
    """pass@1 of a coding question: by its test script where it has one, else by its public and private tests."""
    program = extract_program(response, question.get("partial_solution") or "")
    if question.get("tests"):
        return passes_script(program, question["tests"])
    function = json.loads((question.get("original_json") or {}).get("metadata") or "{}").get("func_name") or ""
    tests = [
        test for field in ("public_test_cases", "private_test_cases") if question.get(field)
        for test in read_tests(question[field], function)
    ]  # fmt: skip
    return passes(program, tests)


def instruction_score(names: list[str], arguments: list[dict[str, Any]], response: str) -> float:
    """Half for following all instructions, half for the share that was followed, as LiveBench averages them.

    Instructions that are not among IFEval's 25 are left out; with none left, the score is 0.
    """
    known = [(name, given) for name, given in zip(names, arguments, strict=True) if name in CHECKS]
    if not known:
        return 0.0
    followed = follow([name for name, _ in known], [given for _, given in known], response).strict
    return (all(followed) + sum(followed) / len(followed)) / 2


def _similar(gold: str, final: str, _: str) -> float:
    return similarity(" ".join(gold.split()), " ".join(final.split())[: 2 * len(gold) + 100])


def _typos(gold: str, final: str, _: str) -> float:
    return float(" ".join(gold.split()) in " ".join(final.split()))


def _plot(gold: str, final: str, response: str) -> float:
    _, tag, summary = response.rpartition("<PLOT_SUMMARY>")
    return order_similarity(gold, summary.replace("</PLOT_SUMMARY>", "") if tag else final)


def _connections(gold: str, final: str, response: str) -> float:
    """The share of the groups of four that were found, whatever their order."""
    bold = _BOLD.findall(response)
    words = final if final.count(",") >= gold.count(",") or not bold else bold[-1]
    found, wanted = _groups(words), _groups(gold)
    return len(found & wanted) / len(wanted) if wanted else 0.0


def _groups(text: str) -> set[frozenset[str]]:
    words = [re.sub(r"[\[\]*.\n]", " ", word).strip().lower() for word in text.split(",")]
    return {frozenset(words[i : i + _GROUP]) for i in range(0, len(words), _GROUP)}


def _words(gold: str, final: str, response: str) -> float:
    """A short answer or a list of them, in the final answer or in the last bold text."""
    wanted = _plain(gold)
    bold = _BOLD.findall(response)
    return float(wanted in (_plain(text) for text in (final, *bold[-1:], _boxed(response) or "")))


def _plain(text: str) -> str:
    return re.sub(r"[^\w,]+", " ", text.lower()).replace(" ,", ",").replace(", ", ",").strip()


def _exact(gold: str, final: str, response: str) -> float:
    tail = re.sub(r"[\s*.\"'`]+", " ", (_boxed(response) or final)).strip().lower()
    return float(tail == gold.strip().lower() or tail.endswith(f" {gold.strip().lower()}"))


def _competition(gold: str, final: str, response: str) -> float:
    """A letter written several times over (AMC), or a number at the end (AIME)."""
    if re.fullmatch(r"[A-E]", gold.strip()):
        repeated = _REPEATED.findall(response)
        letter = repeated[-1] if repeated else (_boxed(response) or final).strip("()*. ")
        return float(letter == gold.strip())
    return float(
        math_equal(gold, final) or re.search(rf"(?<!\d){re.escape(gold.strip())}(?!\d)", response[-50:]) is not None
    )


def _algebra(gold: str, final: str, response: str) -> float:
    return math_equal(gold.strip("$"), (_boxed(response) or final).strip("$"))


def _rearranged(gold: str, final: str, response: str) -> float:
    """The order of a proof's expressions: edit similarity of two lists of numbers."""
    wanted, given = ([int(number) for number in re.findall(r"\d{1,9}", text)] for text in (gold, final))
    return similarity(wanted, given) if given else 0.0


def _table_join(gold: str, final: str, response: str) -> float:
    """F1 of the pairs of a mapping from column to column."""
    wanted, given = _mapping(gold), _mapping((_FENCED.findall(response) or [final])[-1])
    common = sum(wanted.get(key) == value for key, value in given.items())
    return 2 * common / (len(wanted) + len(given)) if wanted and given else 0.0


def _mapping(text: str) -> dict[Any, Any]:
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _table(gold: str, final: str, response: str) -> float:
    """The same rows and columns, whichever of JSON, JSON lines, CSV, TSV and Markdown they are written in."""
    wanted, given = _cells(gold), _cells((_FENCED.findall(response) or [final])[-1])
    return float(bool(wanted) and wanted == given)


def _cells(text: str) -> list[dict[str, str]]:
    text = text.strip()
    for read in (_cells_json, _cells_lines):
        try:
            rows = read(text)
        except (ValueError, AttributeError, TypeError, RecursionError, csv.Error):
            continue
        if rows:
            return [{str(k).strip(): _cell(v) for k, v in row.items()} for row in rows]
    return []


def _cells_json(text: str) -> list[dict[str, Any]]:
    try:
        value = json.loads(text)
    except ValueError:
        value = [json.loads(line) for line in text.split("\n") if line.strip()]
    if isinstance(value, dict):  # rows by their number, or a single line of JSON lines
        value = list(value.values()) if all(isinstance(row, dict) for row in value.values()) else [value]
    return [dict(row) for row in value]


def _cells_lines(text: str) -> list[dict[str, Any]]:
    lines = [
        line.strip().strip("|") for line in text.split("\n") if line.strip() and not re.fullmatch(r"[|\s:-]+", line)
    ]
    separator = next((mark for mark in ("|", "\t", ",") if mark in lines[0]), ",") if lines else ","
    return list(csv.DictReader(io.StringIO("\n".join(lines)), delimiter=separator))


def _cell(value: Any) -> str:
    text = "" if value is None else str(value).strip()
    try:
        return repr(float(text))
    except ValueError:
        return text


_SCORERS: dict[str, Callable[[str, str, str], float]] = {
    "typos": _typos,
    "plot_unscrambling": _plot,
    "connections": _connections,
    "web_of_lies_v2": _words,
    "web_of_lies_v3": _words,
    "zebra_puzzle": _words,
    "spatial": _words,
    "cta": _exact,
    "math_comp": _competition,
    "AMPS_Hard": _algebra,
    "olympiad": _rearranged,
    "tablejoin": _table_join,
    "tablereformat": _table,
}
"""LiveBench's tasks with a written ground truth."""
