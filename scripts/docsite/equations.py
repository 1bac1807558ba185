"""Find the sections of the specification that comments and docstrings of the code mention."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from docsite.markdown import ROOT

NUMBERS = re.compile(r"SPEC ((?:\d+(?:\.\d+b?)?)(?:(?:, | and |/)\d+\.\d+b?)*)")
NUMBER = re.compile(r"\d+(?:\.\d+b?)?")
TITLES = {
    "1": ("Three paths: one fast call, fast and verify, one fast and five slow", ""),
    "2.1": ("Difficulty of a question from 24 features", "d(x) = σ(W·φ(x) + b)"),
    "2.2": ("LaTeX becomes a placeholder before reading and parsing", ""),
    "2.3": ("Domain classifier behind f22 to f24", ""),
    "2.4": ("Clauses counted from dependency relations; our own parser", ""),
    "2.5": ("What difficulty is trained towards", "d* = α·T/max T + (1 − α)·(1 − Acc_fast)"),
    "2.6": ("How it is trained", "MSE(d, d*) + λ_reg·‖W‖²"),
    "2.7": ("Thresholds, and the search for them", "τ1, τ2 = argmax accuracy ÷ mean cost"),
    "2.8": ("Importances, ablations, shipped weights", ""),
    "2.9": ("The keyword trap", ""),
    "2.10": ("The map of d(x) to the paper's mix of paths", ""),
    "2.11": ("Measured accuracy of the fast model in the training target", ""),
    "2.12": ("n-grams beside the features, with a user's own outcomes", ""),
    "3.1": ("Three prompts and the form of their answers", ""),
    "3.2": ("The paper's stop strings, in its profile only", ""),
    "3.3": ("What providers return", ""),
    "3.4": ("Images go to a model that sees them", ""),
    "3.5": ("Two local models where none is configured", ""),
    "3.6": ("Answers that are cut off are continued once", ""),
    "3.7": ("Prompt sets are compared by accuracy per token", ""),
    "4.1": ("Expert router", ""),
    "4.2": ("Model router and catalogue", ""),
    "4.3": ("Strategy selector: difficulty to path and budget", "c ∈ {1, 2, 6}"),
    "4.4": ("Each router can be switched off", ""),
    "5.1": ("Energy per character", "E = −Σ ℓ_t / characters(y)"),
    "5.2": ("Varentropy", "V = Var_t(ℓ_t)"),
    "5.3": ("Free energy of a candidate", "F = E + λ·V"),
    "5.4": ("Control tokens and scaffolding left out", ""),
    "5.5": ("Alignment between models", "F̃ = (F − μ_m) / σ_m"),
    "5.6": ("Too few log-probs: the slow agent decides", "missing > 20%"),
    "5.6b": ("A cut-off or unstated candidate does not vote", ""),
    "5.7": ("Choice on the Medium and the Hard path", "w ∝ exp(−F̃);  argmin F̃"),
    "5.8": ("Worked example", "(0.06, 0.008) → 0.0608"),
    "5.9": ("Rules to compare against", ""),
    "5.10": ("Answer free energy", "F(a) = −(1/β)·log Σ_{y∈a} w_m·exp(−β·F̃(y))"),
    "5.10b": ("Skill weights", "w_m from calibration accuracy"),
    "5.11": ("Signals of an answer, as ranks among the same model's answers", ""),
    "5.12": ("Up to six, not always six", ""),
    "5.13": ("Targets instead of thresholds", ""),
    "5.14": ("A certified largest loss of accuracy", ""),
    "5.15": ("Answers in free text", "F(y) = −(1/β)·log Σ_{y'} s(y, y')·w·exp(−β·F̃(y'))"),
    "6.1": ("Calls and money, both; unknown is not 0", ""),
    "6.2": ("Hard limits of one request", ""),
    "6.2b": ("A key's budget is never exceeded", ""),
    "6.3": ("Degrade, visibly", ""),
    "7.1": ("23 benchmarks", ""),
    "7.2": ("Baselines", ""),
    "7.3": ("Ablations and adversarial rewrites", ""),
    "7.4": ("Statistics", ""),
    "7.5": ("Reports", ""),
    "7.6": ("Router quality: APGR, CPT, AUROC", ""),
    "7.7": ("The paper's tables by command", ""),
    "7.8": ("Small samples make no strong claims", ""),
    "7.9": ("Robustness, RouterArena's score, savings", ""),
    "8.1": ("One format for recorded answers", ""),
    "8.2": ("Import of answers that people already have", ""),
    "8.3": ("One reader for files of questions", ""),
    "9.1": ("Agents by name", ""),
    "9.2": ("Stages", ""),
    "9.3": ("Belief: p that the leading answer is right, q that another agent would be", ""),
    "9.3b": ("Open-ended requests take one call", ""),
    "9.4": ("Is another call worth its price?", "p·V against E[value after the stage] − price"),
    "9.5": ("One dial", "V = 100 · reference price ÷ points"),
    "9.6": ("The paper's policy stays", ""),
    "9.7": ("Everything else is a price or a missing stage", ""),
    "9.8": ("Never worse than the best fixed choice", ""),
    "9.9": ("Replay by a table of items and states", ""),
    "10.1": ("Without labels the slow model is the reference", ""),
    "10.2": ("Advice for a log of requests", ""),
    "10.3": ("Observation: the cascade in the background of the slow model", ""),
    "10.4": ("Agreement with the slow model while the cascade serves", ""),
    "11.1": ("A decision without a call: `POST /v1/decision`, `odar.decide`", ""),
    "11.2": ("Plug-in for a LiteLLM proxy", ""),
    "11.3": ("Facts about models in `/v1/models`, prices of a maintained table", ""),
    "11.4": ("Several workers on one machine", ""),
}
"""What each number of the specification is about, and its formula where it has one."""

IN_TESTS_ONLY = {"2.9", "5.8"}
"""Examples, not mechanisms: what holds them is a test."""
NOT_IN_CODE = {
    "2.11": "measured by [scripts/training/acc_fast.py](../../scripts/training/acc_fast.py)",
    "2.12": "not built",
    "5.12": "replaced by 9.4",
    "5.13": "replaced by 9.5",
}
"""Numbers that no code carries, and why."""


@dataclass(frozen=True, order=True)
class Place:
    """One mention of a number."""

    file: str
    symbol: str
    line: int


@cache
def places() -> dict[str, list[Place]]:
    """Every number, and where src (or, for examples, tests) mentions it: once for each function, at its first line."""
    found: dict[str, dict[tuple[str, str], Place]] = {number: {} for number in TITLES}
    for file in _files():
        name = file.relative_to(ROOT).as_posix()
        in_tests = name.startswith("tests/")
        for number, line in mentions(file.read_text(encoding="utf-8")):
            if number in TITLES and in_tests == (number in IN_TESTS_ONLY):
                symbol = _symbol(file, line)
                found[number].setdefault((name, symbol), Place(name, symbol, line))
    return {number: _most_telling(list(each.values())) for number, each in found.items()}


def _most_telling(found: list[Place]) -> list[Place]:
    """Functions before modules and settings; a module is left out where one of its functions is there."""
    named = {place.file for place in found if place.symbol}
    kept = [place for place in found if place.symbol or place.file not in named]
    return sorted(kept, key=lambda place: (place.file.endswith(".toml"), not place.symbol, place.file, place.line))


def mentions(text: str) -> Iterator[tuple[str, int]]:
    """The numbers that a text mentions, each with its line.

    >>> list(mentions("a\\nequal (SPEC 5.7, 5.10b); see SPEC 1"))
    [('5.7', 2), ('5.10b', 2), ('1', 2)]
    """
    for at, line in enumerate(text.splitlines(), start=1):
        for match in NUMBERS.finditer(line):
            yield from ((number, at) for number in NUMBER.findall(match[1]))


def specified() -> set[str]:
    """The numbers that the specification itself has."""
    text = (ROOT / "docs" / "specification.md").read_text(encoding="utf-8")
    sections = re.findall(r"(?m)^## (\d+)\.", text)
    points = re.findall(r"(?:^|(?<=\. ))(\d+\.\d+b?) (?=[A-Z`*\"M])", text, re.MULTILINE)
    return {number for number in points if number.split(".")[0] in sections} | {"1"}


def equations_page(*, lines: bool) -> str:
    """The page: a row for each number. With `lines`, links go to them, and they are named."""
    rows = []
    for number, (title, formula) in TITLES.items():
        where = NOT_IN_CODE.get(number) or "<br>".join(_link(place, lines) for place in places()[number])
        rows.append(f"| {number} | {title}{f'<br>`{formula}`' if formula else ''} | {where} |")
    return _HEAD + "\n".join(["| SPEC | what | where |", "|---|---|---|", *rows]) + "\n"


def _link(place: Place, lines: bool) -> str:
    name = place.file.removeprefix("src/odar/")
    if lines:
        return f"[{name}:{place.line}](../../{place.file}#L{place.line})" + (
            f" {place.symbol}" if place.symbol else ""
        )
    return f"[{name}](../../{place.file})" + (f" `{place.symbol}`" if place.symbol else "")


def _files() -> list[Path]:
    folders = [("src/odar", "*.py"), ("src/odar", "*.toml"), ("tests/difficulty", "*.py"), ("tests/policy", "*.py")]
    return [file for folder, kind in folders for file in sorted((ROOT / folder).rglob(kind))]


@cache
def _definitions(file: Path) -> list[tuple[int, int, str]]:
    """First line, last line and name of every function and class, outermost first."""
    found: list[tuple[int, int, str]] = []

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                found.append((first, child.end_lineno or first, prefix + child.name))
                visit(child, f"{prefix}{child.name}.")

    visit(ast.parse(file.read_text(encoding="utf-8")), "")
    return found


def _symbol(file: Path, line: int) -> str:
    """The innermost function or class around a line; empty for the module itself, and for TOML."""
    if file.suffix != ".py":
        return ""
    around = [name for first, last, name in _definitions(file) if first <= line <= last]
    return around[-1] if around else ""


_HEAD = """# Equations in the code

Which function is which point of the [specification](../specification.md), whose equations are the paper's and, from 5.10 on,
ours. Comments and docstrings carry the number ("SPEC 5.3"); this page is made from them, and a test fails where a number is
missing or the page is old (`make docs-reference` writes it anew). The built site links to the very lines.

"""
