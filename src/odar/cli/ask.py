"""`odar ask`: one question, one answer on standard output; everything else goes to standard error."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path as FilePath
from typing import Any

import click

from odar.cli.local import DownloadDisplay, fetch_fast_weights, local_providers
from odar.cli.options import COUNT, FILE, POSITIVE, USD, Finite, announce_profile, json_option, settings_options
from odar.cli.terminal import AnswerStream, print_json, strip_control_chars
from odar.engine import Odar, ServingOptions
from odar.errors import InputError, OdarError, one_line
from odar.inputs import check_text, load_image
from odar.policy.target import Target
from odar.settings import Settings
from odar.store.alignment import alignment_file
from odar.store.record import Record
from odar.summary import summary
from odar.types import Answer, Decision, Path, Query

_STORE_TIMEOUT_S = 1.0
"""Seconds to wait for a database that another process has locked."""


@click.command("ask")
@click.argument("question", required=False)
@click.option("-f", "--file", type=FILE, metavar="FILE", help="Read the question from a file.")
@click.option("--image", "images", type=FILE, metavar="FILE", multiple=True, help="An image of it; repeatable.")
@click.option(
    "--path", type=click.Choice([each.value for each in Path]), help="Take this path, whatever the difficulty."
)
@click.option("--seed", type=click.IntRange(min=0), help="Random seed, for providers that support one.")
@click.option("--max-calls", type=COUNT, help="Maximum number of model calls.")
@click.option("--max-cost", "max_cost_usd", type=USD, metavar="USD", help="Maximum cost.")
@click.option("--deadline", "deadline_s", type=POSITIVE, metavar="S", help="Maximum time in seconds.")
@click.option(
    "--target-calls", type=Finite(min=1), metavar="CALLS", help="Target for the mean calls of a question."
)
@json_option("Print one JSON object with answer, candidates and costs.")
@click.option("--explain", is_flag=True, help="Show how the answer came about.")
@settings_options
def command(
    question: str | None,
    file: str | None,
    images: tuple[str, ...],
    target_calls: float | None,
    as_json: bool,
    explain: bool,
    settings: Settings,
    **limits: Any,
) -> None:
    """Answer QUESTION. With "-", or with no question and piped input, read it from standard input.

    \b
    odar ask "Is Paris the capital of France?"
    odar ask --path hard --seed 7 --explain "What is 17 + 25?"
    odar ask --json - < question.txt
    """
    text = _read_question(question, file)
    check_text(text)  # before weights are fetched
    pictures = [load_image(image) for image in images]
    if not as_json:
        announce_profile(settings)
    options = {**limits, "images": pictures, "target": Target.from_options(calls=target_calls)}
    settings = fetch_fast_weights(settings, quiet=as_json)
    preload_store(settings)
    answer, printed = asyncio.run(_ask(settings, text, options, show_progress=not as_json))
    query = Query(text, tuple(pictures))
    if as_json:
        print_json(summary(answer))
    else:
        if not printed:
            click.echo(strip_control_chars(answer.answer) if sys.stdout.isatty() else answer.answer)
        _print_details(answer, query, settings, explain=explain)
    if error := record_trace(answer, query, settings):
        click.echo(f"odar: trace not recorded: {error}", err=True)


def _print_details(answer: Answer, query: Query, settings: Settings, *, explain: bool) -> None:
    """Print the explanation, or only the degradations, to standard error."""
    if explain:
        from odar.cli.explain import print_explanation

        print_explanation(answer, query, settings.profile_reason)
    else:
        for reason in answer.trace.degradations:
            click.echo(f"odar: degraded: {reason}", err=True)


async def _ask(
    settings: Settings, text: str, options: dict[str, Any], *, show_progress: bool
) -> tuple[Answer, bool]:
    """Return the answer, and whether it was already printed."""
    stream = AnswerStream() if show_progress and sys.stdout.isatty() else None
    with _spinner(show_progress and sys.stderr.isatty()) as update:
        display = DownloadDisplay(before=lambda: update(None))  # if the question needs a model that is missing
        providers = local_providers(settings, display) if show_progress else None
        async with Odar(settings, providers=providers, served=alignment_file(settings.store)) as odar:
            if odar.learning_certificate is not None:
                from odar.store.learning import read_t

                odar.use_learned(await asyncio.to_thread(read_t, settings, odar.learning_certificate))

            def show_text(text: str) -> None:
                update(None)
                if stream is not None:
                    stream.feed(text)

            on_text = None if stream is None else show_text
            answer = await odar.aask(text, on_text=on_text, serving=ServingOptions(on_decision=update), **options)
    return answer, stream is not None and stream.finish(answer.answer)


@contextlib.contextmanager
def _spinner(visible: bool) -> Iterator[Callable[[Decision | None], None]]:
    """Show a spinner on standard error; yield a function that shows a decision, or with None stops the spinner."""
    if not visible:
        yield lambda decision: None
        return
    from rich.console import Console

    status = Console(stderr=True, markup=False).status("thinking")
    status.start()

    def update(decision: Decision | None) -> None:
        if decision is None:
            status.stop()
        else:
            status.update(f"{decision.path} path, {decision.reason}")

    try:
        yield update
    finally:
        status.stop()


def _read_question(question: str | None, file: str | None) -> str:
    if file is not None and question is not None:
        raise InputError("give a question or --file, not both")
    source = "standard input"
    if file is not None:
        source = f"file {file!r}"
        try:
            raw = FilePath(file).read_bytes()
        except OSError as error:
            raise InputError(f"{source} cannot be read: {error.strerror or error}") from None
    elif question == "-" or (question is None and not sys.stdin.isatty()):
        raw = sys.stdin.buffer.read()
    elif question is None:
        raise InputError('nothing to answer; try: odar ask "Is Paris the capital of France?"')
    else:
        return question
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{source} is not UTF-8 text: byte {error.start} is {raw[error.start]:#04x}") from None


def preload_store(settings: Settings) -> None:
    """Import the database library (0.3 s) in the background, while the models answer."""
    if settings.store.enabled:
        threading.Thread(target=importlib.import_module, args=("odar.store.archive",), daemon=True).start()


def record_trace(answer: Answer, query: Query, settings: Settings) -> str | None:
    """Store the trace of an answer. Never raises: if it fails, return the error in one line."""
    if not settings.store.enabled:
        return None
    try:
        from odar.store.database import Database
        from odar.store.writer import make_row, write_rows

        with Database(settings.store, _STORE_TIMEOUT_S) as database, database.write() as connection:
            write_rows(connection, [make_row(Record(query, answer), content=settings.store.content)])
    except OdarError as error:
        return one_line(error)
    except Exception as error:  # a failure to store the trace must not lose the answer
        return f"{type(error).__name__}: {one_line(error)}"
    return None
