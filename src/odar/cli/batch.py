"""`odar batch`: a file of questions in, a file of answers out."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any

import click

from odar import errors
from odar.batch.answering import Answering, make_items
from odar.batch.executor import Executor, Item, LocalExecutor, Progress, run
from odar.batch.journal import Journal
from odar.batch.limits import check_needs, rates_of
from odar.batch.questions import Question, load_questions
from odar.cli.embedded import fetch_if_embedded, uses_embedded
from odar.cli.main import EXIT_CODES
from odar.cli.options import announce_profile, settings_options
from odar.engine import Odar
from odar.errors import BudgetExceeded, InputError
from odar.settings import Settings
from odar.types import Query

_PATIENCE = 2
"""An item's ticket is given up after this many deadlines."""


@click.command("batch")
@click.argument("questions", metavar="IN.jsonl")
@click.argument("out", metavar="OUT.jsonl")
@click.option(
    "--concurrency", type=click.IntRange(min=1), default=8, show_default=True, help="Questions at a time."
)
@click.option("--budget", type=click.FloatRange(min=0), metavar="USD", help="Stop before this is spent on OUT.")
@click.option("--seed", type=click.IntRange(min=0), help="Same seed, same answers, where the provider can.")
@click.option("--yes", is_flag=True, help="Do not ask before spending money.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True)
@click.option("--ray-address", metavar="ADDRESS", help="Ray cluster; local starts one. Default: $RAY_ADDRESS.")
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True, help="Processes on Ray.")
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

    A line has query (or messages), optionally id, image, path, max_cost and seed. Interrupt it whenever you like,
    or kill it: the same command goes on from there, and pays for nothing twice. Rows with an error are tried again.

    \b
    odar batch questions.jsonl answers.jsonl --budget 5
    odar batch questions.jsonl answers.jsonl --engine ray --ray-address HOST:6379

    Exit codes: 0 all answered · 2 your input · 3 a provider · 4 a limit · 130 interrupted.
    """
    asked = load_questions(questions, _read_conversation)
    if not as_json:
        announce_profile(settings)
    fetch_if_embedded(settings, quiet=as_json)
    if uses_embedded(settings):
        # It takes one request at a time in each process, and waiting for others counts against an agent's time.
        concurrency = min(concurrency, workers if engine == "ray" else 1)
    items = _items(settings, asked, seed)
    with Journal(Path(out).expanduser()) as journal:
        _confirm(journal.missing(items), len(items), budget, yes)
        open_engine = _engine(engine, settings, seed, ray_address or os.environ.get("RAY_ADDRESS"), workers)
        with _shown(len(items), quiet=as_json) as show:
            try:
                work = run(
                    items, open_engine, journal, concurrency=concurrency, budget_usd=budget, on_progress=show
                )
                done = asyncio.run(work)
            except KeyboardInterrupt:
                click.echo(f"odar: {len(journal.entries)} of {len(items)} rows are in {out}", err=True)
                raise
        kinds = _kinds(journal, items)
    _report(done, kinds, out, as_json=as_json)
    return _exit_code(done, kinds)


def _items(settings: Settings, asked: Sequence[Question], seed: int | None) -> list[Item]:
    odar = Odar(settings)  # opens nothing: only to see what each question may take
    items = make_items(odar, asked, seed)
    for item in items:
        check_needs(item.needs, rates_of(settings))
    return items


def _engine(
    name: str, settings: Settings, seed: int | None, address: str | None, workers: int
) -> Callable[[], AbstractAsyncContextManager[Executor]]:
    """Opens the engine."""
    work, rates, lease_s = Answering(settings, seed), rates_of(settings), _PATIENCE * settings.limits.deadline_s
    if name == "local":
        return lambda: LocalExecutor(work, rates, lease_s)
    from odar.batch.cluster import RayExecutor

    return lambda: RayExecutor(work, rates, lease_s, address=address, workers=workers)


def _read_conversation(messages: list[Any]) -> Query:
    """Messages as OpenAI's clients write them."""
    from odar.gateway.chat import read_chat
    from odar.gateway.refusals import Refusal

    try:
        return read_chat({"model": "odar", "messages": messages}).query
    except Refusal as refusal:
        raise ValueError(refusal.message) from None


def _confirm(todo: Sequence[Item], total: int, budget: float | None, yes: bool) -> None:
    """Say what it may cost, and ask where it is not nothing and nobody has set a budget."""
    costs = [item.worst_cost_usd for item in todo]
    known = sum(cost for cost in costs if cost is not None)
    unknown = None in costs
    if todo:
        price = "an unknown amount: a price is missing" if unknown else f"at most ${known:.4f}"
        click.echo(f"odar: {len(todo)} of {total} questions to answer, {price}", err=True)
    if unknown and budget is not None:
        raise BudgetExceeded("--budget cannot be kept while a price is unknown; add it to odar.toml")
    if (unknown or known) and budget is None and not yes:
        if not sys.stdin.isatty():
            raise InputError("this costs money; add --budget USD or --yes to go on")
        click.confirm("go on?", abort=True, err=True)


@contextmanager
def _shown(total: int, *, quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """A bar on standard error with the cost so far and to go."""
    if quiet:
        yield lambda progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}")
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total)
        yield lambda progress: bar.update(task, completed=progress.done, description=_costs(progress))


def _costs(progress: Progress) -> str:
    """
    >>> _costs(Progress(total=4, done=2, failed=0, cost_usd=0.5))
    '$0.5000 so far, about $0.5000 to go'
    """
    so_far = "cost unknown" if progress.cost_usd is None else f"${progress.cost_usd:.4f} so far"
    to_go = progress.cost_to_go_usd
    failed = f", {progress.failed} failed" if progress.failed else ""
    return so_far + ("" if to_go is None else f", about ${to_go:.4f} to go") + failed


def _kinds(journal: Journal, items: Sequence[Item]) -> Counter[str]:
    """The errors in the rows, by type."""
    failed = [item.key for item in items if item.key in journal.entries and journal.entries[item.key].failed]
    return Counter(json.loads(line)["error"]["type"] for line in journal.lines(failed))


def _report(done: Progress, kinds: Counter[str], out: str, *, as_json: bool) -> None:
    if as_json:
        body = {**dataclasses.asdict(done), "errors": dict(kinds), "out": out}
        click.echo(json.dumps(body, ensure_ascii=False))
        return
    cost = "an unknown amount" if done.cost_usd is None else f"${done.cost_usd:.4f}"
    answered = done.done - done.failed
    click.echo(f"{answered} of {done.total} answered, {done.asked} of them now, for {cost} in all: {out}")
    for kind, count in kinds.most_common():
        click.echo(f"odar: {count} rows failed with {kind}; the same command tries them again", err=True)
    if done.stopped:
        click.echo(f"odar: stopped: {done.stopped}", err=True)


def _exit_code(done: Progress, kinds: Counter[str]) -> int:
    """What is worst for the user to miss: a provider that failed, then a limit, then the input."""
    codes = {
        next((code for kind, code in EXIT_CODES if issubclass(getattr(errors, name, Exception), kind)), 1)
        for name in kinds
    }
    if done.stopped:
        codes.add(4)
    return next((code for code in (3, 4, 2, *sorted(codes)) if code in codes), 0)
