"""`odar eval`: does it help, by how much, how sure are we? Collect once, replay every policy, report."""

from __future__ import annotations

import click

from odar.cli.lazy import LazyGroup

PLACES = {
    "list": "odar.cli.eval_sets:list_benchmarks",
    "collect": "odar.cli.eval_collect:collect",
    "replay": "odar.cli.eval_replay:replay",
    "compare": "odar.cli.eval_replay:compare",
    "report": "odar.cli.eval_report:report",
    "score": "odar.cli.eval_sets:score_command",
}
"""Where each subcommand is; loaded when it runs."""
HELP = {
    "list": "List the benchmarks.",
    "collect": "Run both agents on benchmarks once, and keep everything.",
    "replay": "Replay policies on a panel, with no further call.",
    "compare": "Compare two policies, or two panels, item by item.",
    "report": "Write one HTML file with every table and figure.",
    "score": "Score responses you have already.",
}


@click.group("eval", cls=LazyGroup, places=PLACES, sections={"Commands": HELP})
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
