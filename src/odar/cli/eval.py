"""`odar eval`: record answers once, replay every policy on them, report the gains with intervals."""

from __future__ import annotations

import click

from odar.cli.main import LazyGroup

PLACES = {
    "list": "odar.cli.eval_collect:list_benchmarks",
    "collect": "odar.cli.eval_collect:collect_command",
    "convert": "odar.cli.eval_collect:convert",
    "import": "odar.cli.eval_import:command",
    "replay": "odar.cli.eval_replay:replay",
    "compare": "odar.cli.eval_replay:compare",
    "fuse": "odar.cli.eval_replay:fuse",
    "judge": "odar.cli.eval_collect:judge",
    "report": "odar.cli.eval_replay:report",
}
"""Module and function of each subcommand, which is imported when it runs."""
HELP = {
    "list": "List the benchmarks.",
    "collect": "Run both agents on benchmarks or your own questions once, and record everything.",
    "convert": "Write a recording in another format.",
    "import": "Import answers of lm-eval, inspect_ai, OpenAI Batch or a table, with no further call.",
    "replay": "Replay policies on a recording, with no further call.",
    "compare": "Compare two policies, or two recordings, item by item.",
    "fuse": "Compare fusion rules on the candidates of a recording.",
    "judge": "Ask a model which of two recorded answers is better.",
    "report": "Write one HTML file with every table and figure.",
}


@click.group("eval", cls=LazyGroup, places=PLACES, sections={"Commands": HELP})
def command() -> None:
    """Measure what adaptive compute gains.

    A recording holds, for every item, the fast answer, the slow verification and n slow samples. Every policy,
    baseline, ablation and sweep is then a replay of the recording: in seconds, with no further call.

    \b
    odar eval collect starter --out runs/starter.jsonl --limit 48
    odar eval replay runs/starter.jsonl --policy odar --policy baselines
    odar eval compare runs/starter.jsonl#odar runs/starter.jsonl#single-fast
    odar eval report runs/starter.jsonl --out report.html
    """
