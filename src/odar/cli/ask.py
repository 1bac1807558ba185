"""`odar ask`: one question, one answer on standard output; everything else goes to standard error."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from odar.cli.local import DownloadDisplay, fetch_fast_weights, local_providers
from odar.cli.options import (
    COUNT,
    FILE,
    POSITIVE,
    USD,
    agent_options,
    announce_profile,
    json_option,
    settings_options,
    warn_of_foreign_calibration,
)
from odar.cli.terminal import notice, print_facts, print_json, strip_control_chars
from odar.decisions import NextStep
from odar.engine import Odar
from odar.errors import InputError, OdarError, one_line
from odar.files import read_errors
from odar.inputs import check_text, load_image
from odar.options import AskOptions
from odar.policy.dial import Dial
from odar.served.alignment import alignment_file
from odar.settings import Settings
from odar.traces.record import Record, to_document
from odar.traces.story import dollars
from odar.types import Answer, Decision, Query, Route

_STORE_TIMEOUT_S = 1.0
"""Seconds to wait for a database that another process has locked."""


@click.command("ask")
@click.argument("question", required=False)
@click.option("-f", "--file", type=FILE, metavar="FILE", help="Read the question from a file.")
@click.option("--image", "images", type=FILE, metavar="FILE", multiple=True, help="An image of it; repeatable.")
@click.option(
    "--path", type=click.Choice([each.value for each in Route]), help="Take this path of the paper's policy."
)
@click.option("--dial", metavar="DIAL", help="economy, balanced, quality, or points of accuracy, such as 5.")
@click.option("--seed", type=click.IntRange(min=0), help="Random seed, for providers that support one.")
@click.option("--max-calls", type=COUNT, help="Maximum number of model calls.")
@click.option("--max-cost-usd", type=USD, metavar="USD", help="Maximum cost.")
@click.option("--deadline", "deadline_s", type=POSITIVE, metavar="S", help="Maximum time in seconds.")
@click.option("--short", is_flag=True, help="Print only the final answer, such as 42, if the text states one.")
@json_option("Print one JSON object with text, final answer, candidates and costs.")
@click.option("--explain", is_flag=True, help="Show how the answer came about.")
@click.option("--dry-run", is_flag=True, help="Show what would be asked and what it would cost, without any call.")
@click.option("--verbose", is_flag=True, help="With --explain: difficulty, features and energies too.")
@agent_options
@settings_options
def command(
    question: str | None,
    file: str | None,
    images: tuple[str, ...],
    dial: str | None,
    short: bool,
    as_json: bool,
    explain: bool,
    dry_run: bool,
    verbose: bool,
    settings: Settings,
    **limits: Any,
) -> None:
    """Answer QUESTION. With "-", or with no question and piped input, read it from standard input.

    \b
    odar ask "Is Paris the capital of France?"
    odar ask --dial quality --explain "What is 17 + 25?"
    odar ask --json - < question.txt
    odar ask --dry-run "What is 17 * 23 + 4?"
    """
    # read the question
    text = _read_question(question, file)
    check_text(text)  # before weights are fetched
    pictures = [load_image(image) for image in images]
    if not as_json:
        announce_profile(settings)
        warn_of_foreign_calibration(settings)
    parsed = None if dial is None else Dial.parse(dial)
    options = AskOptions(**limits, images=pictures, dial=parsed, short=short)
    if dry_run:
        with Odar(settings, served=alignment_file(settings.store)) as odar:
            step = odar.decide(text, (), options)
        print_json(step.to_dict()) if as_json else print_facts(_step_facts(step))
        return
    # answer it
    settings = fetch_fast_weights(settings, quiet=as_json)
    preload_store(settings)
    streams = sys.stdout.isatty() and not as_json and not short
    answer = asyncio.run(_ask(settings, text, options, show_progress=not as_json, streams=streams))
    # print the answer, and store its trace
    query = Query(text, tuple(pictures))
    if as_json:
        print_json(to_document(Record(query, answer.trace), content=True))
    else:
        reply = "" if streams else answer.final if short else answer.text  # a stream has written the text itself
        click.echo(strip_control_chars(reply) if sys.stdout.isatty() else reply)
        if explain or verbose:
            from odar.cli.explain import print_explanation

            print_explanation(answer, query, settings.profile_reason, verbose=verbose)
        else:
            for reason in answer.trace.degradations:
                notice(f"degraded: {reason}")
    if error := record_trace(answer, query, settings):
        notice(f"trace not recorded: {error}")


def _step_facts(step: NextStep) -> Iterator[tuple[str, str]]:
    """Yield what would be asked first, the prices, and when ODAR would stop."""
    plan = step.plan
    yield "first", f"{step.stage}{', and nothing after it' if step.decision.final else ''}"
    yield "models", ", ".join(f"{agent} {model}" for agent, model in plan.models.items())
    yield "kind", f"{plan.kind}, difficulty {plan.estimate.difficulty:.2f}, dial {plan.dial}"
    nominal = " (relative prices)" if plan.nominal else ""
    alone = "" if step.slow_usd is None else f"; one slow call {dollars(step.slow_usd)}"
    yield "cost", f"first {dollars(step.next_usd)}, expected {dollars(step.expected_usd)}{alone}{nominal}"
    for line in step.thresholds:
        yield "rule", line
    if step.thresholds:
        yield "", "d is the difficulty, p the probability that the leading answer is right"


async def _ask(settings: Settings, text: str, options: AskOptions, *, show_progress: bool, streams: bool) -> Answer:
    """Answer the question; with `streams`, write the text to standard output as soon as it is known."""
    with _spinner(show_progress and sys.stderr.isatty()) as update:
        display = DownloadDisplay(before=lambda: update(None))  # if the question needs a model that is missing
        providers = local_providers(settings, display) if show_progress else None
        async with Odar(settings, providers=providers, served=alignment_file(settings.store)) as odar:

            def show_text(text: str) -> None:
                update(None)
                click.echo(strip_control_chars(text), nl=False)

            on_text = show_text if streams else None
            return await odar.aask(
                text, replace(options, on_text=on_text, on_decision=lambda each, _: update(each))
            )


@contextlib.contextmanager
def _spinner(visible: bool) -> Iterator[Callable[[Decision | None], None]]:
    """Show a spinner on standard error; yield a function that shows a decision, or with None stops the spinner."""
    if not visible:
        yield lambda decision: None
        return
    from rich.console import Console

    with Console(stderr=True, markup=False).status("thinking") as status:

        def update(decision: Decision | None) -> None:
            if decision is None:
                status.stop()
            else:
                status.update(f"asking {decision.stage}" if decision.stage else "done")

        yield update


def _read_question(question: str | None, file: str | None) -> str:
    if file is not None and question is not None:
        raise InputError("give a question or --file, not both")
    if file is not None:
        with read_errors(f"file {file!r}"):
            return Path(file).read_bytes().decode()
    if question == "-" or (question is None and not sys.stdin.isatty()):
        with read_errors("standard input"):
            return sys.stdin.buffer.read().decode()
    if question is None:
        raise InputError('nothing to answer; try: odar ask "Is Paris the capital of France?"')
    return question


def preload_store(settings: Settings) -> None:
    """Import the database library (0.3 s) in the background, while the models answer."""
    if settings.store.enabled:
        threading.Thread(target=importlib.import_module, args=("odar.traces.archive",), daemon=True).start()


def record_trace(answer: Answer, query: Query, settings: Settings) -> str | None:
    """Store the trace of an answer. Never raises: if it fails, return the error in one line."""
    if not settings.store.enabled:
        return None
    try:
        from odar.traces.database import Database
        from odar.traces.writer import make_row, write_rows

        with Database(settings.store, _STORE_TIMEOUT_S) as database, database.write() as connection:
            write_rows(connection, [make_row(Record(query, answer.trace), content=settings.store.content)])
    except Exception as error:  # a failure to store the trace must not lose the answer
        return one_line(error if isinstance(error, OdarError) else f"{type(error).__name__}: {error}")
    return None
