"""`odar eval`: does it help, by how much, how sure are we? Collect once, replay every policy, report."""

from __future__ import annotations

import importlib

import click

PLACES = {
    "collect": "odar.cli.eval_collect:collect",
    "compare": "odar.cli.eval_replay:compare",
    "list": "odar.cli.eval_sets:list_benchmarks",
    "replay": "odar.cli.eval_replay:replay",
    "report": "odar.cli.eval_report:report",
    "score": "odar.cli.eval_sets:score_command",
}
"""Where each subcommand is; loaded when it runs."""
HELP = {
    "collect": "Run both agents on benchmarks once, and keep everything.",
    "compare": "Compare two policies, or two panels, item by item.",
    "list": "List the benchmarks.",
    "replay": "Replay policies on a panel, with no further call.",
    "report": "Write one HTML file with every table and figure.",
    "score": "Score responses you have already.",
}


class EvalGroup(click.Group):
    """Imports a subcommand's module only when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every subcommand, by name."""
        return list(PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand of this name."""
        if cmd_name not in PLACES:
            return None
        module, _, name = PLACES[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in `odar eval --help`, without importing what it lists."""
        with formatter.section("Commands"):
            formatter.write_dl(list(HELP.items()))


@click.group("eval", cls=EvalGroup)
def command() -> None:
    """Measure what adaptive compute gains.

    A panel records, for every item, the fast answer, the slow verification and n slow samples. Every policy,
    baseline, ablation and sweep is then a replay of the panel: in seconds, with no further call.

    \b
    odar eval collect starter --out runs/starter --limit 48
    odar eval replay runs/starter --policy odar --policy baselines
    odar eval compare runs/starter#odar runs/starter#single-fast
    odar eval report runs/starter --out report.html
    """
