"""A group of commands, each imported when it runs and not before, so that `--help` is quick."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from odar.errors import UnknownName


class LazyGroup(click.Group):
    """Commands by name.

    Args:
        places: where each is, as "module:attribute".
        sections: how `--help` lists them: by heading, the name of each and what it does.
    """

    def __init__(
        self, *args: Any, places: Mapping[str, str], sections: Mapping[str, Mapping[str, str]], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._places = places
        self._sections = sections

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, by name."""
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name."""
        if cmd_name not in self._places:
            return None
        module, _, attribute = self._places[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The lists in `--help`, without importing what they list."""
        longest = max(map(len, self._places))
        for heading, commands in self._sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(longest), what) for name, what in commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a misspelt one gets a hint."""
        if args and args[0] not in self._places and not args[0].startswith("-"):
            raise UnknownName("command", args[0], self._places)
        return super().resolve_command(ctx, args)
