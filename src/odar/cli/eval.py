"""`odar eval`: record answers once, replay every policy on them, and report the gains with intervals."""

from __future__ import annotations

import click

from odar.cli.main import LazyGroup

COMMANDS = {
    "list": ("eval_collect", "List the benchmarks."),
    "collect": ("eval_collect", "Run all agents on benchmarks or your own questions once, and record everything."),
    "import": (
        "eval_import",
        "Import answers of lm-eval, inspect_ai, OpenAI Batch or a table, with no further call.",
    ),
    "replay": ("eval_replay", "Replay policies on a recording, with no further call."),
    "compare": ("eval_replay", "Compare two policies, or two recordings, item by item."),
    "fuse": ("eval_replay", "Compare fusion rules on the candidates of a recording."),
    "prompts": ("eval_prompts", "Compare prompt sets on the same questions."),
    "report": ("eval_replay", "Write one HTML file with every table and figure."),
}
"""Module and summary of each subcommand."""


@click.group(
    "eval",
    cls=LazyGroup,
    locations={name: f"odar.cli.{module}:{name}_command" for name, (module, _) in COMMANDS.items()},
    sections={"Commands": {name: summary for name, (_, summary) in COMMANDS.items()}},
)
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
