"""Exact matches: BIG-Bench Hard answers in any notation, and ARC-AGI grids."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence

_PREFIX = re.compile(r"the (?:final )?answer is:?\s+", re.IGNORECASE)
_WRAPPED = re.compile(r"\\?(?:boxed|text|texttt)\{(.*)\}", re.DOTALL)
_OPTION = re.compile(r"\(?([a-z])\)(?:[.:]?\s.*)?", re.DOTALL)
Grid = list[list[int]]
ATTEMPTS = 2
_LIST = re.compile(r"\[[\d\s,\[\]]*")
_ROW = re.compile(r"[ \t]*\[?((?:\d[ \t,]*)+)\]?,?[ \t]*")


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


def grid_match(gold: Grid, response: str) -> float:
    """1 where one of the two attempts is the gold grid exactly: size and every cell.

    Attempts are the last two grids of the response, so that a model may quote the examples while it thinks. A grid
    is a JSON list of lists, or rows of digits with or without spaces.

    >>> grid_match([[1, 2], [3, 4]], "First try:\\n1 2\\n3 3\\n\\nSecond try:\\n[[1, 2], [3, 4]]")
    1.0
    """
    return float(gold in grids(response)[-ATTEMPTS:])


def grids(text: str) -> list[Grid]:
    """Every grid in a text, in its order.

    >>> grids("[[0, 1]]\\nthen\\n12\\n34")
    [[[0, 1]], [[1, 2], [3, 4]]]
    """
    found: list[tuple[int, Grid]] = []
    rest, reached = [], 0
    for start, end in _nested(text):
        if (grid := _parse(text[start:end])) is not None:
            found.append((start, grid))
            rest += [text[reached:start], re.sub(r"[^\n]", "#", text[start:end])]  # so that places stay
            reached = end
    found += _drawn("".join([*rest, text[reached:]]))
    return [grid for _, grid in sorted(found, key=lambda item: item[0])]


def _nested(text: str) -> Iterator[tuple[int, int]]:
    """Where lists of lists begin and end; one pass, whatever the text."""
    for run in _LIST.finditer(text):
        waiting: list[int] = []
        deepest = 0
        for match in re.finditer(r"[\[\]]", run[0]):
            if match[0] == "[":
                waiting.append(run.start() + match.start())
                deepest = max(deepest, len(waiting))
            elif waiting:
                start = waiting.pop()
                if not waiting:
                    if deepest == 2:
                        yield start, run.start() + match.end()
                    deepest = 0


def _parse(text: str) -> Grid | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    rows = value if isinstance(value, list) else []
    flat = all(isinstance(row, list) and row and all(isinstance(cell, int) for cell in row) for row in rows)
    return value if rows and flat else None


def _drawn(text: str) -> list[tuple[int, Grid]]:
    """Grids written as lines of digits; lines of unequal length are not a grid."""
    found: list[tuple[int, Grid]] = []
    start, rows, position = 0, Grid(), 0
    for line in [*text.split("\n"), ""]:
        match = _ROW.fullmatch(line)
        if match:
            start = start if rows else position
            rows.append([int(digit) for digit in re.findall(r"\d", match[1])])
        else:
            if rows and len({len(row) for row in rows}) == 1:
                found.append((start, rows))
            rows = []
        position += len(line) + 1
    return found


def show(grid: Sequence[Sequence[int]]) -> str:
    """A grid as rows of digits.

    >>> print(show([[1, 2], [3, 4]]))
    1 2
    3 4
    """
    return "\n".join(" ".join(map(str, row)) for row in grid)
