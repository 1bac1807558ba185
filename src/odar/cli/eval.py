"""`odar eval`: record answers once, replay every policy on them, and report the gains with intervals."""

from __future__ import annotations

import click

from odar.cli.main import LazyGroup

COMMANDS = {
    "list": ("eval_collect:list_command", "List the benchmarks."),
    "collect": ("eval_collect:collect_command", "Let all agents answer questions once, and record everything."),
    "import": ("eval_import:import_command", "Import answers of lm-eval, inspect_ai, OpenAI Batch or a table."),
    "replay": ("eval_replay:replay_command", "Replay policies on a recording, with no further call."),
    "compare": ("eval_replay:compare_command", "Compare two policies, or two recordings, item by item."),
    "fuse": ("eval_replay:fuse_command", "Compare fusion rules on the candidates of a recording."),
    "prompts": ("eval_prompts:prompts_command", "Compare prompt sets on the same questions."),
    "report": ("eval_replay:report_command", "Write one HTML file with every table and figure."),
}
"""Place and summary of each subcommand."""


@click.group("eval", cls=LazyGroup, sections={"Commands": COMMANDS})
def command() -> None:
    """Measure what adaptive compute gains.

    A recording holds, for every item, an answer of each agent, the slow verification and n slow samples. Every
    policy, baseline, ablation and sweep is then a replay of the recording: in seconds, with no further call.

    \b
    odar eval collect starter --out runs/starter.jsonl --limit 48
    odar eval replay runs/starter.jsonl --policy odar --policy baselines
    odar eval compare runs/starter.jsonl#odar runs/starter.jsonl#single-fast
    odar eval report runs/starter.jsonl --out report.html
    """
