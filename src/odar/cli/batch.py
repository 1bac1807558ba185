"""`odar batch`: a file of questions in, a file of answers out."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import click

from odar.cli.collecting import (
    confirm,
    engine_options,
    exit_code,
    failures,
    read_conversation,
    report_failures,
    shown,
    work_on,
)
from odar.cli.local import fetch_weights, uses_local_model
from odar.cli.options import FILE, announce_profile, json_option, settings_options, spending_options
from odar.engine import Odar
from odar.recording.batch import Answering, make_items
from odar.recording.executor import run
from odar.recording.journal import Journal
from odar.recording.limits import rates_of
from odar.recording.questions import load_questions
from odar.settings import Settings


@click.command("batch")
@click.argument("questions", type=FILE, metavar="IN.jsonl")
@click.argument("out", type=FILE, metavar="OUT.jsonl")
@spending_options(concurrency=8)
@click.option("--seed", type=click.IntRange(min=0), help="Random seed, for providers that support one.")
@json_option("Print the summary as JSON.")
@engine_options
@settings_options
def command(
    questions: str,
    out: str,
    concurrency: int,
    budget: float | None,
    seed: int | None,
    yes: bool,
    as_json: bool,
    engine: str,
    ray_address: str | None,
    workers: int,
    settings: Settings,
) -> int:
    """Answer every question of IN.jsonl; OUT.jsonl gets one row for each, in the same order.

    A line has query (or messages), optionally id, image, path, max_cost and seed. You can interrupt or kill the
    command at any time: the same command continues, and no answer is paid for twice. Failed rows are repeated.

    \b
    odar batch questions.jsonl answers.jsonl --budget 5
    odar batch questions.jsonl answers.jsonl --engine ray --ray-address HOST:6379

    Exit codes: 0 all answered · 2 your input · 3 a provider · 4 a limit · 130 interrupted.
    """
    asked = load_questions(questions, read_conversation)
    if not as_json:
        announce_profile(settings)
    fetch_weights(settings, quiet=as_json)
    if uses_local_model(settings):
        # It takes one request at a time in each process, and waiting for others counts against an agent's time.
        concurrency = min(concurrency, workers if engine == "ray" else 1)
    items = make_items(Odar(settings), asked, seed)  # that engine opens nothing
    with Journal(Path(out)) as journal:
        confirm(settings, journal.missing(items), len(items), "questions", "", budget, yes=yes)
        work = work_on(engine, Answering(settings, seed), ray_address, workers)
        with shown(len(items), quiet=as_json) as show:
            limits: dict[str, Any] = {"rates": rates_of(settings), "concurrency": concurrency, "budget_usd": budget}
            try:
                done = asyncio.run(run(items, work, journal, on_progress=show, **limits))
            except KeyboardInterrupt:
                click.echo(f"odar: {len(journal.entries)} of {len(items)} rows are in {out}", err=True)
                raise
        failed = failures(journal, items)
    if as_json:
        kinds = Counter(error["type"] for error in failed.values())
        click.echo(json.dumps({**dataclasses.asdict(done), "errors": kinds, "out": out}, ensure_ascii=False))
    else:
        cost = "an unknown amount" if done.cost_usd is None else f"${done.cost_usd:.4f}"
        answered = f"{done.done - done.failed} of {done.total} answered, {done.asked} of them now"
        click.echo(f"{answered}, for {cost} in all: {out}")
        report_failures(failed, done)
    return exit_code(failed, done.stopped)
