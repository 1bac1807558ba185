"""Every regular expression of the package takes time proportional to the length of the text it reads.

The patterns are found by machine: those that are compiled while all modules are imported and a question is answered,
and those that are written in calls of `re`. Each reads texts of up to 10⁵ characters: runs of one character or a few,
and repetitions of the pattern's own parts.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import pytest

import odar

SOURCE = Path(odar.__file__).parent
TESTS = Path(__file__).parents[1]
SIZES = (400, 3_200, 25_600, 102_400)
SLACK = 3
"""Time may grow this many times faster than the text; quadratic time grows 4 or 8 times faster from size to size."""
HARMLESS_S = 0.05
"""Growth below this time is noise of the machine; at the largest size a quadratic pattern takes seconds."""
RUNS = (
    *" \n\t1aAé()[]{}\"'`\\$*-/<=:.,",
    "a ",
    "1,",
    "1.",
    " \n",
    "\r\n",
    "a. ",
    "(A) ",
    "A) ",
    "a\n",
    "\n- ",
    '"a',
    "a@",
)
METHODS = {"findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn"}
BOUNDED = {
    "difficulty/tokenizer.py:_suffix": "reads words, which are cut after 60 characters",
    "difficulty/tokenizer.py:_url": "reads words, which are cut after 60 characters",
    "lab/adversarial.py:_FORMULA": "reads questions of benchmarks",
    "lab/adversarial.py:_KEPT": "reads questions of benchmarks",
    "lab/report/draw.py:to_svg": "reads figures that matplotlib drew",
    "policy/quantities.py:_FRAC": "reads numbers of at most 120 characters",
    "policy/quantities.py:_POWER": "reads numbers of at most 120 characters",
    "policy/quantities.py:_RATIO": "reads numbers of at most 120 characters",
    "policy/kinds.py:_cues": "reads the first 1,200 and the last 600 characters of a question",
}
"""Patterns that may take longer, because no client and no model server can give them a long text."""
UNSEEN = {
    "agents/prompts/__init__.py:_without_part": "patterns of PARTS, applied to prompts of the user's own",
    "lab/graders/ifeval.py:CHECKS": "the keywords of a benchmark",
    "lab/graders/ifeval.py:_keyword_frequency": "the keyword of a benchmark",
    "lab/graders/ifeval.py:_postscript": "the letters of a benchmark's marker",
    "prices.py:_find_providers": "patterns of the table of prices, applied to the user's own addresses",
    "prices.py:_rows": "patterns of the table of prices, applied to names of at most 200 characters",
}
"""Calls with a pattern that is neither written there nor compiled at import."""


class Pattern(NamedTuple):
    """A regular expression, the name or function it belongs to, and whether it is only applied at the start of a text."""

    text: str | bytes
    flags: int
    place: str
    anchored: bool


def calls(module: Path) -> Iterator[tuple[ast.Call, str, set[str]]]:
    """Every call of `re`, the name or function it belongs to, and the methods by which its pattern is used."""
    tree = ast.parse(module.read_text())
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    used: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            used.setdefault(ast.unparse(node.value), set()).add(node.attr)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and ast.unparse(node.func.value) == "re"
        ):
            methods = {node.func.attr} & METHODS
            name = ""
            above: ast.AST = node
            while not name and above in parents:
                if isinstance(above, ast.Attribute) and above.attr in METHODS and not methods:
                    methods = {above.attr}
                above = parents[above]
                if isinstance(above, ast.FunctionDef):
                    name = above.name
                elif isinstance(above, ast.Assign | ast.AnnAssign):
                    target = above.targets[0] if isinstance(above, ast.Assign) else above.target
                    constant = ast.unparse(target).rpartition(".")[2]
                    name = constant if constant.startswith("_") or constant.isupper() else ""
            if methods or node.func.attr == "compile":
                yield node, name, methods or used.get(name, {"search"})


def written(node: ast.expr) -> str | bytes | None:
    """The pattern of an argument, in which "word" stands for every value that is not written out; None for a name."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "word" for part in node.values)
    return None


def flags_of(call: ast.Call) -> int:
    given = [keyword.value for keyword in call.keywords if keyword.arg == "flags"] + call.args[1:]
    names = {name.attr for each in given for name in ast.walk(each) if isinstance(name, ast.Attribute)}
    return sum(int(getattr(re, name)) for name in names if isinstance(getattr(re, name, None), re.RegexFlag))


def find_patterns() -> tuple[list[Pattern], set[str]]:
    """All patterns of the package, and the places whose pattern could not be found."""
    command = [sys.executable, "-m", "support.record_patterns"]
    recorded = json.loads(subprocess.check_output(command, text=True, cwd=TESTS))
    found: dict[tuple[str | bytes, int], Pattern] = {}
    unseen = set()
    for module in sorted(SOURCE.rglob("*.py")):
        file = module.relative_to(SOURCE).as_posix()
        for call, name, methods in calls(module):
            place = f"{file}:{name}"
            lines = range(call.lineno, (call.end_lineno or call.lineno) + 1)
            here = [each for each in recorded if each[3] == file and each[4] in lines]
            patterns = [
                (text.encode("latin-1") if is_bytes else text, flags) for text, is_bytes, flags, _, _ in here
            ]
            if not patterns and (text := written(call.args[0])) is not None:
                patterns = [(text, flags_of(call))]
            unseen |= set() if patterns else {place}
            for text, flags in patterns:
                anchored = methods <= {"match", "fullmatch"} and found.get((text, flags), (True,))[-1]
                found[text, flags] = Pattern(text, flags, place, anchored)
    return list(found.values()), unseen


PATTERNS, NOT_FOUND = find_patterns()


def test_every_pattern_is_found():
    assert len(PATTERNS) > 150
    assert set(UNSEEN) == NOT_FOUND
    assert set(BOUNDED) <= {pattern.place for pattern in PATTERNS}


# ── texts made of a pattern's own parts ─────────────────────────────────────────────────────────────────────


def sample(tree: Any) -> str:
    """A short text that the parts of a pattern match, or nearly."""
    return "".join(_sample(code, value) for code, value in tree)


def _sample(code: Any, value: Any) -> str:
    if code is op.LITERAL:
        return chr(value)
    if code is op.NOT_LITERAL:
        return "b" if value == ord("a") else "a"
    if code is op.IN:
        return next((c for c in "a1 A-.(\n\\_" if _member(c, value)), _first(value))
    if code in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
        low, high, part = value
        return sample(part) * min(max(low, 1), high, 400)
    if code is op.SUBPATTERN:
        return sample(value[-1])
    if code is op.ATOMIC_GROUP:
        return sample(value)
    if code is op.BRANCH:
        return sample(value[1][0])
    return "a" if code in (op.ANY, op.GROUPREF) else ""


CATEGORIES = {op.CATEGORY_DIGIT: r"\d", op.CATEGORY_SPACE: r"\s", op.CATEGORY_WORD: r"\w"}
CATEGORIES |= {op.CATEGORY_NOT_DIGIT: r"\D", op.CATEGORY_NOT_SPACE: r"\S", op.CATEGORY_NOT_WORD: r"\W"}


def _member(character: str, items: Any) -> bool:
    inside = False
    for code, value in items:
        if code is op.LITERAL:
            inside |= ord(character) == value
        elif code is op.RANGE:
            inside |= value[0] <= ord(character) <= value[1]
        elif code is op.CATEGORY:
            inside |= re.match(CATEGORIES[value], character) is not None
    return inside != (items[0][0] is op.NEGATE)


def _first(items: Any) -> str:
    code, value = items[0]
    return chr(value if code is op.LITERAL else value[0] if code is op.RANGE else ord("~"))


def own_texts(tree: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Pairs of a beginning and a part to repeat after it."""
    for code, value in tree:
        here = _sample(code, value)
        if code in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            yield before, sample(value[2])
            yield from own_texts(value[2], before)
        elif code is op.SUBPATTERN:
            yield from own_texts(value[-1], before)
        elif code is op.ATOMIC_GROUP:
            yield from own_texts(value, before)
        elif code is op.BRANCH:
            for branch in value[1][:8]:
                yield from own_texts(branch, before)
        before += here
        yield "", before


def texts(pattern: Pattern) -> list[tuple[str, str]]:
    tree = parser.parse(pattern.text, pattern.flags)
    pairs = [*(("", run) for run in RUNS), *own_texts(tree)]
    return list(dict.fromkeys((before, part) for before, part in pairs if part and len(before + part) < 500))


# ── time ────────────────────────────────────────────────────────────────────────────────────────────────────


def cpu_time(use: Callable[[Any], Any], text: str | bytes) -> float:
    """Processor time of this thread in seconds: other processes do not count."""
    began = time.thread_time()
    use(text)
    return time.thread_time() - began


def is_slow(pattern: Pattern, before: str, part: str) -> bool:
    """Whether the time grows faster than the text between two sizes, in each of six pairs of measurements."""
    compiled = re.compile(pattern.text, pattern.flags)
    empty = b"" if isinstance(pattern.text, bytes) else ""

    def text_of(size: int) -> str | bytes:
        text = before + part * (size // len(part)) + "\0"  # which no pattern expects at the end
        return text.encode() if isinstance(pattern.text, bytes) else text

    anchored: list[Callable[[Any], Any]] = [compiled.fullmatch, compiled.match]
    for use in anchored if pattern.anchored else [lambda text: compiled.sub(lambda _: empty, text)]:
        for smaller, size in pairwise(SIZES):
            short, long = text_of(smaller), text_of(size)
            for _ in range(6):  # a busy machine disturbs single measurements
                limit = max(SLACK * cpu_time(use, short) * size / smaller, HARMLESS_S)
                if cpu_time(use, long) <= limit:
                    break
            else:
                return True
    return False


@pytest.mark.parametrize(
    "pattern", [each for each in PATTERNS if each.place not in BOUNDED], ids=lambda pattern: pattern.place
)
def test_time_grows_with_the_text(pattern):
    slow = next((pair for pair in texts(pattern) if is_slow(pattern, *pair)), None)
    assert slow is None, f"{pattern.text!r} at {pattern.place}"


def test_a_quadratic_pattern_is_found():
    before = Pattern(r"^\s*(?:\(([A-J])\)|([A-J])[.):])\s+\S", re.MULTILINE, "", anchored=False)
    assert is_slow(before, "", "\n")
    assert not is_slow(before._replace(anchored=True), "", "\n")
