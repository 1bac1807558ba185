"""The reference of commands: the output of `--help` for all of them, on one page."""

from __future__ import annotations

from collections.abc import Iterator

import click

from odar.cli.main import COMMANDS, EXIT_CODES, cli

_HEAD = """# Command line

What `--help` prints, for every command. `odar COMMAND --help` shows the same in your terminal, for the version you have.

`--profile`, `--config` and `--set` choose [settings](settings.md); `--json` prints for machines, errors included.

"""


def cli_page() -> str:
    """The page."""
    summary = "\n".join(f"| [`odar {name}`](#odar-{name}) | {what} |" for name, what in COMMANDS.items())
    codes = " · ".join(
        [
            "0 done",
            "1 any other `OdarError`, or a result that is not good enough",
            *(f"{code} `{kind.__name__}`" for kind, code in EXIT_CODES),
            "130 interrupted",
        ]
    )
    sections = "\n".join(_section(names, context) for names, context in _contexts())
    return f"{_HEAD}| command | |\n|---|---|\n{summary}\n\nExit codes: {codes}.\n\n{sections}"


def _contexts() -> Iterator[tuple[list[str], click.Context]]:
    """Every command and subcommand, in the order of `odar --help`."""
    top = click.Context(cli, info_name="odar", **cli.context_settings)
    for name in COMMANDS:
        command = cli.get_command(top, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=top)
        yield [name], context
        if isinstance(command, click.Group):
            for sub in command.list_commands(context):
                inner = command.get_command(context, sub)
                assert inner is not None
                yield [name, sub], click.Context(inner, info_name=sub, parent=context)


def _section(names: list[str], context: click.Context) -> str:
    title = f"{'#' * (1 + len(names))} odar {' '.join(names)}"
    context.command._help_option = None  # click keeps that of the first call, which may have come without a parent
    return f"{title}\n\n```text\n{context.get_help().strip()}\n```\n"
