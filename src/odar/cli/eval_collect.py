"""`odar eval collect`: both agents on every item, once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from odar.cli.embedded import fetch_if_embedded, uses_embedded
from odar.cli.options import announce_profile, settings_options
from odar.engine import Odar
from odar.errors import BudgetExceeded, InputError
from odar.evals.benchmarks.base import BENCHMARKS
from odar.evals.panel.collect import Collection, Job, Progress
from odar.evals.panel.folder import open_folder
from odar.evals.panel.folds import plan
from odar.evals.panel.header import header_of
from odar.settings import Settings

MOST_SAMPLES = 9
"""The longest best-of-N curve of SPEC 7.3."""


@click.command("collect")
@click.argument("benchmarks", nargs=-1, required=True, metavar="BENCHMARK...")
@click.option("--out", required=True, metavar="DIR", help="The panel's folder.")
@click.option("--limit", type=click.IntRange(min=1), help="Items of each benchmark, a stratified draw.")
@click.option("--seed", "seeds", type=int, multiple=True, default=(42,), show_default=True, help="Repeatable.")
@click.option(
    "--samples", type=click.IntRange(1, MOST_SAMPLES), help="Slow samples an item. Default: the Hard path's."
)
@click.option("--data", metavar="DIR", help="Read the benchmarks from this folder, not from the hub.")
@click.option(
    "--budget", type=click.FloatRange(min=0), metavar="USD", help="All the panel may cost, earlier runs too."
)
@click.option("--concurrency", type=click.IntRange(min=1), default=4, show_default=True, help="Items at a time.")
@click.option("--yes", is_flag=True, help="Do not ask before spending money.")
@click.option("--quiet", is_flag=True, help="No progress bar.")
@settings_options
def collect(
    benchmarks: tuple[str, ...],
    out: str,
    limit: int | None,
    seeds: tuple[int, ...],
    samples: int | None,
    data: str | None,
    budget: float | None,
    concurrency: int,
    yes: bool,
    quiet: bool,
    settings: Settings,
) -> int:
    """Run both agents on every item of some benchmarks, and keep all they said in a panel.

    Stop it whenever you like, by Ctrl-C or kill -9: every answer is on the disk as soon as it is there, and the
    same command goes on from it. Sets of more than 5,000 items give five disjoint stratified folds of 1,000.

    \b
    odar eval collect starter --out runs/starter
    odar eval collect gsm8k math --data data --seed 42 --seed 123 --seed 456 --samples 9 --out runs/maths
    """
    announce_profile(settings)
    fetch_if_embedded(settings, quiet=quiet)
    if uses_embedded(settings):
        concurrency = 1  # it takes one request at a time, and waiting for others counts against an agent's time
    jobs = _jobs(benchmarks, limit, seeds, Path(data).expanduser() if data else None)
    asked = replace(settings, routing=replace(settings.routing, samples=samples or settings.routing.samples))
    work = _run(
        asked, settings.routing.samples, jobs, Path(out).expanduser(), budget, concurrency, yes, quiet=quiet
    )
    return asyncio.run(work)


def _jobs(names: Sequence[str], limit: int | None, seeds: Sequence[int], folder: Path | None) -> list[Job]:
    """Every item of every benchmark under every seed; the draw is the same for all seeds."""
    jobs: list[Job] = []
    for name in dict.fromkeys(names):
        benchmark = BENCHMARKS[name]
        drawn = plan(list(benchmark.load(folder)), limit=limit)
        if not drawn.tasks:
            raise InputError(f"benchmark {name} holds no items")
        pairs = list(zip(drawn.tasks, drawn.folds, strict=True))
        jobs += [Job(benchmark, task, fold, seed) for seed in dict.fromkeys(seeds) for task, fold in pairs]
    return jobs


async def _run(
    settings: Settings,
    path_samples: int,
    jobs: list[Job],
    out: Path,
    budget: float | None,
    concurrency: int,
    yes: bool,
    *,
    quiet: bool,
) -> int:
    async with Odar(settings) as odar:
        with open_folder(out, header_of(odar, path_samples)) as folder:
            collection = Collection(odar, folder, jobs, budget)
            _confirm(collection, budget, yes)
            try:
                await _answer(collection, concurrency, quiet=quiet)
            finally:
                kept = folder.compact()
                _summary(collection.progress(), kept, out)
    for key, error in collection.failures[:1]:
        count = len(collection.failures)
        click.echo(f"odar: {count} items failed, the first ({key.benchmark} {key.id}): {error}", err=True)
    return 1 if collection.failures else 0


def _confirm(collection: Collection, budget: float | None, yes: bool) -> None:
    """Say what it may cost, and ask where it is not nothing."""
    todo = collection.missing()
    if not todo:
        return
    cost, calls = collection.worst_cost(todo), len(todo) * (2 + collection.samples)
    price = "an unknown amount: a price is missing" if cost is None else f"at most ${cost:.2f}"
    total = len(collection.jobs)
    click.echo(f"odar: {len(todo)} of {total} items to answer, at most {calls} calls, {price}", err=True)
    if cost is None and budget is not None:
        raise BudgetExceeded("--budget cannot be kept while a price is unknown; add it to odar.toml")
    if cost != 0 and not yes:
        if not sys.stdin.isatty():
            raise InputError("this costs money; add --yes to go on")
        click.confirm("go on?", abort=True, err=True)


async def _answer(collection: Collection, concurrency: int, *, quiet: bool) -> None:
    if quiet:
        await collection.run(concurrency=concurrency)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    start = collection.progress()
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("answering", total=start.total, completed=start.done)

        def show(progress: Progress) -> None:
            bar.update(task, completed=progress.done, description=f"answering{_money(progress)}")

        await collection.run(concurrency=concurrency, on_progress=show)


def _money(progress: Progress) -> str:
    """What has been spent and what is still to come; nothing where nothing costs."""
    failed = f", {progress.failed} failed" if progress.failed else ""
    if progress.spent_usd is None:
        return f", cost unknown{failed}"
    if not progress.spent_usd:
        return failed
    to_go = "" if progress.to_go_usd is None else f", about ${progress.to_go_usd:.4f} to go"
    return f", ${progress.spent_usd:.4f} spent{to_go}{failed}"


def _summary(progress: Progress, kept: int, out: Path) -> None:
    goes_on = "" if progress.done == progress.total else "; the same command goes on from here"
    money = _money(replace(progress, to_go_usd=None, failed=0))
    click.echo(
        f"odar: {progress.done} of {progress.total} items done{money}; {out} holds {kept}{goes_on}", err=True
    )
