"""`odar batch`: answer a file of questions."""

from __future__ import annotations

import dataclasses
from collections import Counter
from functools import partial
from pathlib import Path

import click

from odar.cli.local import local_models, prepare_models
from odar.cli.options import FILE, json_option, settings_options, warn_of_foreign_calibration
from odar.cli.runs import RunOptions, exit_code, read_chat_body, report_failures, run_items, run_options
from odar.cli.terminal import format_known, notice, print_json
from odar.engine import Odar
from odar.lab.recording.questions import load_questions
from odar.lab.runs.batch import make_items, open_batch_work
from odar.lab.runs.journal import Journal
from odar.settings import Settings


@click.command("batch")
@click.argument("questions", type=FILE, metavar="IN.jsonl")
@click.argument("out", type=FILE, metavar="OUT.jsonl")
@run_options(concurrency=8)
@click.option("--seed", type=click.IntRange(min=0), help="Random seed, for providers that support one.")
@json_option("Print the summary as JSON.")
@settings_options
def command(questions: str, out: str, run: RunOptions, seed: int | None, as_json: bool, settings: Settings) -> int:
    """Answer every question of IN.jsonl; OUT.jsonl gets one row for each, in the same order.

    A line has query (or messages), optionally id, image, path, max_cost_usd and seed. You can interrupt or kill the
    command at any time: the same command continues, and no answer is paid for twice. Failed rows are repeated.

    \b
    odar batch questions.jsonl answers.jsonl --budget 5
    odar batch questions.jsonl answers.jsonl --engine ray --ray-address HOST:6379

    Exit codes: 0 all answered · 2 your input · 3 a provider · 4 a limit · 130 interrupted.
    """
    loaded = load_questions(questions, read_chat_body)
    if not as_json:
        warn_of_foreign_calibration(settings)
    prepare_models(settings, quiet=as_json)
    if local_models(settings):
        # A local model answers one request at a time, and an agent's timeout includes waiting for others.
        processes = run.workers if run.engine == "ray" else 1
        run = dataclasses.replace(run, concurrency=min(run.concurrency, processes))
    items = make_items(Odar(settings), loaded, seed)  # this engine makes no call
    work = partial(open_batch_work, settings, seed)
    with Journal(Path(out)) as journal:
        try:
            done, failed = run_items(run, settings, items, journal, work)
        except KeyboardInterrupt:
            notice(f"{len(journal.entries)} of {len(items)} rows are in {out}")
            raise
    if as_json:
        kinds = Counter(error["type"] for error in failed.values())
        print_json({**dataclasses.asdict(done), "errors": kinds, "out": out})
    else:
        cost = format_known(done.cost_usd, "${:.4f}", "an unknown amount")
        answered = f"{done.done - done.failed} of {done.total} answered, {done.asked} of them now"
        click.echo(f"{answered}, for {cost} in all: {out}")
        report_failures(failed, done)
    return exit_code(failed, done.stopped)
