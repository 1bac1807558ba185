"""How an answer came about, on a sheet: facts, then a line for each candidate.

Readable at 80 columns, without colour, and piped. `--explain` fills it from an answer, `odar traces show` from what
was recorded of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from odar.cli.harmless import harmless
from odar.cli.tables import plain_table
from odar.types import Step

WIDTH = 80
_ENERGIES = (("E", ".4f"), ("V", ".3f"), ("F", ".4f"), ("F̃", "+.2f"))
_LEGEND = "E energy per character · V varentropy · F = E + λV · F̃ aligned · * chosen"
_JUDGMENTS = {True: "agrees: ", False: "disagrees: ", None: ""}


@dataclass(frozen=True, slots=True)
class CandidateLine:
    """One candidate; its answer is cut where it is long, never the figures."""

    chosen: bool
    step: Step
    judgment: bool | None
    answer: str
    energies: Sequence[float | None]
    """E, V, F and F̃; None where one is unknown."""

    def cells(self) -> list[str]:
        """Mark, agent, answer and figures."""
        figures = [
            "-" if value is None else format(value, form)
            for value, (_, form) in zip(self.energies, _ENERGIES, strict=True)
        ]
        shown = _JUDGMENTS[self.judgment] + _flat(self.answer)
        return ["*" if self.chosen else "", f"{self.step.role} {self.step}", shown, *figures]


def print_sheet(
    facts: Iterable[tuple[str, str]], candidates: Sequence[CandidateLine], *, stderr: bool = False
) -> None:
    """Write both."""
    console = Console(stderr=stderr, width=WIDTH, highlight=False, markup=False)
    console.print(_facts(facts))
    if candidates:
        console.print()
        console.print(_candidates(candidates))
        console.print(_LEGEND, style="dim")


def models(fast: str, slow: str) -> str:
    """Who took part; there is no slow one where the caller named the model."""
    return f"fast {fast}, slow {slow}" if slow else fast


def money(cost: float | None) -> str:
    """US dollars."""
    return "unknown: a price or a token count is missing" if cost is None else f"${cost:.6f}"


def tokens(count: int | None) -> str:
    """A number of tokens."""
    return "unknown" if count is None else f"{count:,}"


def _facts(facts: Iterable[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, Text(_flat(value)))
    return table


def _flat(text: str) -> str:
    """Without line breaks, and without what a terminal would obey."""
    return " ".join(harmless(text).split())


def _candidates(candidates: Iterable[CandidateLine]) -> Table:
    table = plain_table()
    table.width = WIDTH - 1
    table.add_column("", min_width=1)
    table.add_column("agent", min_width=11, no_wrap=True)
    table.add_column("answer", ratio=1, overflow="ellipsis", no_wrap=True)
    for name, _ in _ENERGIES:
        table.add_column(name, justify="right", min_width=7, no_wrap=True)
    for line in candidates:
        table.add_row(*map(Text, line.cells()), style="bold" if line.chosen else "")
    return table
