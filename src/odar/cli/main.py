"""`odar`: the group of commands, loaded one by one so that `--help` is quick."""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import click

from odar import __version__
from odar.errors import BudgetExceeded, OdarError, ProviderError, StoreError, UsageError, WeightsError

COMMANDS = {
    "ask": "Answer a question.",
    "batch": "Answer a file of questions.",
    "bench": "Measure what ODAR itself costs, and what it gains.",
    "calibrate": "Fit ODAR to your own models and questions.",
    "config": "Show the effective settings and where each came from.",
    "eval": "Collect a panel once, replay every policy on it, report.",
    "fuse": "Compare fusion rules on recorded candidates.",
    "difficulty": "Show how hard a query looks, and why.",
    "doctor": "Check what is installed, reachable and configured.",
    "feedback": "Mark a recorded answer right or wrong.",
    "keys": "Make, list and revoke API keys.",
    "models": "List the models of the catalogue.",
    "pull": "Fetch the embedded model's weights ahead of time.",
    "sample": "Record one fast and several slow answers, for `odar fuse`.",
    "serve": "Answer over HTTP: OpenAI's and Anthropic's APIs.",
    "top": "Watch a running gateway, live.",
    "traces": "List, show and export recorded traces.",
    "train": "Learn the difficulty estimator from your own data.",
}
EXIT_CODES: tuple[tuple[type[OdarError], int], ...] = (
    (UsageError, 2),
    (ProviderError, 3),
    (BudgetExceeded, 4),
    (WeightsError, 5),
    (StoreError, 6),
)


class LazyGroup(click.Group):
    """Imports a command's module only when that command runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, by name."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"odar.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in `odar --help`, without importing what it lists."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a misspelt one gets a hint."""
        from odar.errors import UnknownName

        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise UnknownName("command", args[0], COMMANDS)
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog='Try: odar ask "Is Paris the capital of France?"   (needs no key)',
)
@click.version_option(__version__, prog_name="odar")
def cli() -> None:
    """ODAR gives every question as much model compute as it needs.

    A difficulty estimate sends it down one of three paths: one fast call; a fast answer that a slow model
    verifies; or one fast and up to five slow samples, of which the answer with the lowest free energy wins.

    Exit codes: 0 answered · 2 your input or settings · 3 the provider · 4 a limit · 5 the embedded model's
    weights · 6 the store · 130 interrupted.
    """


def main(arguments: list[str] | None = None) -> None:
    """The entry point: one clear line for every expected failure, never a traceback."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = cli.main(arguments, prog_name="odar", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except OdarError as error:
        _report(error, as_json="--json" in arguments)
        sys.exit(next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 1))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("odar: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader has left; a complaint about it would only follow
        sys.exit(141)


def _report(error: OdarError, *, as_json: bool) -> None:
    if as_json:
        body: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
        if isinstance(error, ProviderError):
            body |= {
                "provider": error.provider,
                "status": error.status,
                "code": error.code,
                "retry_after": error.retry_after,
                "retryable": error.retryable,
            }
        if error.spend is not None:
            body |= {"calls": error.spend.calls, "cost_usd": error.spend.cost_usd}
        click.echo(json.dumps({"error": body}, ensure_ascii=False))
    else:
        message = " ".join(str(error).split())
        click.echo(f"odar: {message}".encode("utf-8", "replace").decode(), err=True)
