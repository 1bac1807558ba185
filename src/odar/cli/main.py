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
        "ask": ("ask:command", "Answer a question."),
        "batch": ("batch:command", "Answer a file of questions."),
        "serve": ("serve:command", "Answer over HTTP: OpenAI's and Anthropic's APIs."),
    },
    "Inspect": {
        "doctor": ("doctor:command", "Check what is installed, reachable and configured."),
        "config": ("config:command", "Show the effective settings and where each came from."),
        "models": ("models:command", "List the models of the catalogue."),
        "difficulty": ("difficulty:command", "Show how difficult a question looks, and why."),
        "traces": ("traces:command", "List, show and export recorded traces."),
    },
    "Calibrate": {
        "advise": ("advise:command", "Show what ODAR would save on your own traffic."),
        "observe": ("observe:command", "Show what observed questions say about the cascade."),
        "feedback": ("traces:feedback", "Mark a recorded answer right or wrong."),
        "calibrate": ("calibrate:command", "Fit ODAR to your own models and questions."),
        "certify": ("certify:command", "Find the cheapest dial that loses at most so much accuracy."),
        "train": ("train:command", "Train the difficulty estimator on your own questions."),
    },
    "Evaluate": {
        "eval": ("eval:command", "Record answers once, replay every policy, report."),
    },
    "Set up": {
        "keys": ("keys:command", "Make, list and revoke API keys."),
        "pull": ("local:pull", "Download weights of local models ahead of time."),
    },
}
"""The place and summary of each command, under the headings of `odar --help`."""
COMMANDS = {name: summary for commands in SECTIONS.values() for name, (_, summary) in commands.items()}
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
        sections: under each heading of `--help`, the commands by name: "module:attribute", and a summary.
    """

    def __init__(self, *args: Any, sections: Mapping[str, Mapping[str, tuple[str, str]]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sections = sections
        self._places = {name: place for commands in sections.values() for name, (place, _) in commands.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; raise UnknownName, with a hint, if it is misspelt."""
        if cmd_name.startswith("-"):
            return None  # click says that there is no such option
        if cmd_name not in self._places:
            raise UnknownName("command", cmd_name, self._places)
        command: click.Command = pkgutil.resolve_name(f"odar.cli.{self._places[cmd_name]}")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the lists of `--help` without importing the commands."""
        longest = max(map(len, self._places))
        for heading, commands in self._sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(longest), summary) for name, (_, summary) in commands.items()])


@click.group(
    cls=LazyGroup,
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
