"""BIG-Bench Hard and Extra Hard: exact match that forgives how an answer is written."""

from __future__ import annotations

import math
import re

_PREFIX = re.compile(r"the (?:final )?answer is:?\s+", re.IGNORECASE)
_WRAPPED = re.compile(r"\\?(?:boxed|text|texttt)\{(.*)\}", re.DOTALL)
_OPTION = re.compile(r"\(?([a-z])\)(?:[.:]?\s.*)?", re.DOTALL)


def bigbench(gold: str, answer: str) -> float:
    """1 where the answer equals the target by BBEH's published rules, which BBH's are part of.

    What follows the last "the answer is" counts, its first line, in lower case, without LaTeX wrapping, bold marks,
    outer quotes, a closing full stop and the space after commas. Then equal are: the same text; `a` and `(a)`;
    equal numbers (`90` and `90.0`); texts that differ in apostrophes, in outer square brackets, or in a closing
    question mark. Beyond the published rules an option may carry its text (`(B) the red ball`): models write that.

    >>> bigbench("(B)", "The answer is: **B**."), bigbench("90.0", "90"), bigbench("no, no", "no,no")
    (1.0, 1.0, 1.0)
    """
    wanted, given = _reference(gold), _prediction(answer)
    return float(_same(given, wanted))


def _prediction(answer: str) -> str:
    text = _PREFIX.split(answer.strip())[-1].strip()
    text = text.removesuffix(".").strip("$").strip()
    while match := _WRAPPED.fullmatch(text):
        text = match[1].strip()
    line = text.lower().replace(", ", ",").replace("**", "").strip().split("\n")[0].strip()
    return line.removesuffix(".").strip("\"'")


def _reference(gold: str) -> str:
    return gold.strip().lower().replace(", ", ",").strip("\"'")


def _same(given: str, wanted: str) -> bool:
    if given == wanted or given.replace("'", "") == wanted.replace("'", ""):
        return True
    if f"({given})" == wanted or given == f"({wanted})":
        return True
    if f"[{given}]" == wanted or given in (f"[{wanted}]", f"{wanted}?"):
        return True
    if re.fullmatch(r"\([a-z]\)", wanted) and (match := _OPTION.fullmatch(given)):
        return match[1] == wanted[1]
    first, second = _float(given), _float(wanted)
    return first is not None and first == second


def _float(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isnan(value) else value
