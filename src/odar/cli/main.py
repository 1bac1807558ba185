"""The `odar` command: lazily imported subcommands, exit codes, and errors in one line."""

from __future__ import annotations

import json
import pkgutil
import sys
from collections.abc import Mapping
from typing import Any

import click

from odar import __version__
from odar.cli.terminal import notice
from odar.errors import (
    BudgetExceeded,
    OdarError,
    ProviderError,
    StoreError,
    UnknownName,
    UsageError,
    WeightsError,
    one_line,
)

SECTIONS = {
    "Answer": {
        "ask": "Answer a question.",
        "batch": "Answer a file of questions.",
        "serve": "Answer over HTTP: OpenAI's and Anthropic's APIs.",
    },
    "Inspect": {
        "doctor": "Check what is installed, reachable and configured.",
        "config": "Show the effective settings and where each came from.",
        "models": "List the models of the catalogue.",
        "difficulty": "Show how difficult a question looks, and why.",
        "traces": "List, show and export recorded traces.",
    },
    "Calibrate": {
        "advise": "Show what ODAR would save on your own traffic.",
        "observe": "Show what observed questions say about the cascade.",
        "feedback": "Mark a recorded answer right or wrong.",
        "calibrate": "Fit ODAR to your own models and questions.",
        "certify": "Find the cheapest dial that loses at most so much accuracy.",
        "train": "Train the difficulty estimator on your own questions.",
    },
    "Evaluate": {
        "eval": "Record answers once, replay every policy, report.",
    },
    "Set up": {
        "keys": "Make, list and revoke API keys.",
        "pull": "Download weights of local models ahead of time.",
    },
}
LOCATIONS = {
    "feedback": "odar.cli.traces:feedback",
    "pull": "odar.cli.local:pull",
}
"""Commands that are not called `command` in the module of their name."""
COMMANDS = {name: summary for commands in SECTIONS.values() for name, summary in commands.items()}
EXIT_CODES: tuple[tuple[type[OdarError], int], ...] = (
    (UsageError, 2),
    (ProviderError, 3),
    (BudgetExceeded, 4),
    (WeightsError, 5),
    (StoreError, 6),
)


class LazyGroup(click.Group):
    """A group whose commands are imported when they run.

    Args:
        locations: "module:attribute" of each command.
        sections: names and summaries of the commands under each heading of `--help`.
    """

    def __init__(
        self, *args: Any, locations: Mapping[str, str], sections: Mapping[str, Mapping[str, str]], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._locations = locations
        self._sections = sections

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._locations)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return pkgutil.resolve_name(self._locations[cmd_name]) if cmd_name in self._locations else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the lists of `--help` without importing the commands."""
        longest = max(map(len, self._locations))
        for heading, commands in self._sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(longest), summary) for name, summary in commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; raise UnknownName, with a hint, if it is misspelt."""
        if args and args[0] not in self._locations and not args[0].startswith("-"):
            raise UnknownName("command", args[0], self._locations)
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    locations={name: LOCATIONS.get(name, f"odar.cli.{name}:command") for name in COMMANDS},
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80, "show_default": True},
    epilog='Try: odar ask "Is Paris the capital of France?"   (needs no key)',
)
@click.version_option(__version__, prog_name="odar")
def cli() -> None:
    """ODAR gives every question as much model compute as it is worth.

    A fast model answers first. After every answer ODAR asks whether another call is worth its price: a second
    opinion of another model, the slow model, more samples of it; for hard questions it starts with the slow model.

    Exit codes: 0 done · 1 not good enough (doctor, train) · 2 your input or settings · 3 the provider ·
    4 a limit · 5 a local model's weights · 6 the store · 130 interrupted.
    """


def main(arguments: list[str] | None = None, group: click.Group = cli, prog: str = "odar") -> None:
    """Run the command and exit; expected errors are printed in one line, without a traceback."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = group.main(arguments, prog_name=prog, standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except OdarError as error:
        _report(error, as_json="--json" in arguments)
        sys.exit(exit_code_of(type(error)))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        notice("interrupted")
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # Python would report the same error again
        sys.exit(141)


def exit_code_of(error: type[BaseException]) -> int:
    return next((code for kind, code in EXIT_CODES if issubclass(error, kind)), 1)


def _report(error: OdarError, *, as_json: bool) -> None:
    if as_json:
        body: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
        if isinstance(error, ProviderError):
            names = ("provider", "status", "code", "retry_after", "retryable")
            body |= {name: getattr(error, name) for name in names}
        if error.spend is not None:
            body |= {"calls": error.spend.calls, "cost_usd": error.spend.cost_usd}
        click.echo(json.dumps({"error": body}, ensure_ascii=False))
    else:
        notice(one_line(error))
