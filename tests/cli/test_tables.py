from __future__ import annotations

from rich.console import Console

from odar.cli.terminal import plain_table


def shown(table) -> list[str]:
    console = Console(width=40)
    with console.capture() as capture:
        console.print(table)
    return capture.get().splitlines()


def test_columns_have_a_gap_and_numbers_are_right_aligned():
    table = plain_table("name", "n", gap=2, right={"n"})
    table.add_row("a", "1000")
    assert shown(table) == ["name     n", "a     1000"]


def test_options_apply_to_every_column():
    table = plain_table("name", "other", no_wrap=True)
    table.add_row("a " * 10, "b " * 30)
    assert len(shown(table)) == 2
