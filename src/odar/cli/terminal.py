"""Terminal output: text without control characters, JSON, and tables."""

from __future__ import annotations

import json
import math
import shutil
import sys
import textwrap
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import click

from odar.errors import one_line

if TYPE_CHECKING:
    from rich.console import Console

_REPLACEMENTS: dict[int, str] = {
    **{code: "�" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"},
    ord("\r"): "",  # half of a line end, or meant to overwrite the line
}
WIDTH = 80
"""Columns of output that has a fixed width."""


def strip_control_chars(text: str) -> str:
    r"""Replace control characters, which could clear the screen, change the title or fill the clipboard.

    Line ends and tabs stay. A text can be given in pieces.

    >>> strip_control_chars("4\x1b]0;title\x07\r\n\tfür 漢字")
    '4�]0;title�\n\tfür 漢字'
    """
    return text.translate(_REPLACEMENTS)


def print_json(body: Any, indent: int | None = None) -> None:
    """Print JSON, with named tuples as objects, NaN as null and ∞ as a text."""
    click.echo(json.dumps(_to_plain(body), ensure_ascii=False, allow_nan=False, indent=indent))


def _to_plain(tree: Any) -> Any:
    if hasattr(tree, "_asdict"):
        tree = tree._asdict()
    if isinstance(tree, dict):
        return {name: _to_plain(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_to_plain(value) for value in tree]
    if isinstance(tree, float) and not math.isfinite(tree):
        return None if math.isnan(tree) else str(tree)
    return tree


def format_known(value: float | None, spec: str, unknown: str = "unknown") -> str:
    """A number in the format `${:.4f}` or the like, or `unknown` if it is None or NaN.

    >>> format_known(0.5, "${:.4f}"), format_known(None, "${:.4f}")
    ('$0.5000', 'unknown')
    """
    return unknown if value is None or math.isnan(value) else spec.format(value)


def page_console(*, stderr: bool = False) -> Console:
    """A console of 80 columns, which prints brackets as they are."""
    from rich.console import Console

    return Console(stderr=stderr, width=WIDTH, highlight=False, markup=False)


def print_columns(
    columns: Mapping[str, Sequence[str]], *, left: Container[str] = (), gap: int = 1, folds: bool = False
) -> None:
    """Print a table by its columns; a terminal gets the first ones that it has room for.

    The first column and those of `left` are aligned to the left, the others, numbers, to the right. With `folds` a
    terminal gets all columns; the last one, aligned to the left, is folded.
    """
    from rich.cells import cell_len

    cells = [[title, *map(strip_control_chars, column)] for title, column in columns.items()]
    widths = [max(map(cell_len, column)) for column in cells]
    if sys.stdout.isatty() and not folds:
        room = shutil.get_terminal_size().columns + gap
        fitting = sum(total <= room for total in accumulate(width + gap for width in widths))
        cells = cells[: max(1, fitting)]
    for number, row in enumerate(zip(*cells, strict=True)):
        line = ""
        for column, (cell, width) in enumerate(zip(row, widths, strict=False)):
            space = " " * (width - cell_len(cell))
            if folds and column == len(row) - 1:
                line += folded(cell, cell_len(line), breaks=True)
            elif column == 0 or cells[column][0] in left:
                line += cell + space + " " * gap
            else:
                line += space + cell + " " * gap
        line = line.rstrip()
        click.echo(click.style(line, bold=True) if number == 0 else line)
    if left_out := list(columns)[len(cells) :]:
        notice(f"a wider terminal, or a pipe, also shows: {', '.join(left_out)}")


def folded(text: str, indent: int = 0, *, stderr: bool = False, breaks: bool = False) -> str:
    """A text folded between words to the width of the terminal; unchanged in a pipe.

    Args:
        text: one line.
        indent: spaces before the second and further lines; the caller prints as much before the first.
        stderr: whether it goes to standard error.
        breaks: whether words that are longer than a line are broken; a path is easier to copy in one piece.
    """
    if not (sys.stderr if stderr else sys.stdout).isatty():
        return text
    width = max(10, shutil.get_terminal_size().columns - indent)
    lines = textwrap.wrap(text, width, break_long_words=breaks, break_on_hyphens=False)
    return ("\n" + " " * indent).join(lines)


def notice(text: str) -> None:
    """Write a line of ODAR's own to standard error, folded between words on a terminal."""
    click.echo(folded(f"odar: {text}", 6, stderr=True), err=True)


def print_text(text: str, **style: Any) -> None:
    """Print a text, folded to 80 columns, in the style of `click.secho`."""
    folded_text = click.wrap_text(text, WIDTH)
    click.echo(click.style(folded_text, **style) if style else folded_text)


def print_facts(facts: Iterable[tuple[str, str]], *, stderr: bool = False) -> None:
    """Print a name and a text on each line; long texts are folded to 80 columns."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, Text(one_line(value)))
    page_console(stderr=stderr).print(table)
