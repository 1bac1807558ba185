"""Tables on a terminal: columns and nothing between them, so that they can be read, piped and cut."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from rich.table import Table


def plain_table(*columns: str, gap: int = 1, right: Container[str] = (), **options: Any) -> Table:
    """A table with these columns.

    Args:
        columns: their titles.
        gap: spaces between them.
        right: those whose values stand at the right, as figures do.
        options: of every column, such as `no_wrap`.
    """
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="bold")
    for title in columns:
        table.add_column(title, justify="right" if title in right else "left", **options)
    return table
