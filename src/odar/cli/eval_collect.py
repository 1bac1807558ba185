"""`odar eval collect`: both agents on every item, once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from odar.batch.opening import WithEngine
from odar.cli.collecting import (
    confirm,
    copies,
    engine_options,
    exit_code,
    failures,
    open_copies,
    open_engine,
    patient,
    report_failures,
    shown,
)
from odar.cli.local import fetch_weights, uses_local_model
from odar.cli.options import Finite, UserPath, announce_profile, settings_options
from odar.engine import Odar
from odar.errors import InputError
from odar.evals.benchmarks.base import BENCHMARKS
from odar.evals.panel.asking import asking
from odar.evals.panel.collect import Collection, Job
from odar.evals.panel.folder import PanelFolder, open_folder
from odar.evals.panel.folds import plan
from odar.evals.panel.header import header_of
from odar.evals.panel.readiness import check_scorer, with_fitting_prompts
from odar.settings import Settings

MOST_SAMPLES = 9
"""The longest best-of-N curve of SPEC 7.3."""
REQUESTS = 3
"""An item is answered, verified and solved one after the other, each within the deadline of a request."""


@click.command("collect")
@click.argument("benchmarks", nargs=-1, required=True, metavar="BENCHMARK...")
@click.option("--out", type=UserPath(), required=True, metavar="DIR", help="The panel's folder.")
@click.option("--limit", type=click.IntRange(min=1), help="Items of each benchmark, a stratified draw.")
@click.option("--seed", "seeds", type=int, multiple=True, default=(42,), show_default=True, help="Repeatable.")
@click.option(
    "--samples", type=click.IntRange(1, MOST_SAMPLES), help="Slow samples an item. Default: the Hard path's."
)
@click.option(
    "--data", type=UserPath(), metavar="DIR", help="Read the benchmarks from this folder, not from the hub."
)
@click.option("--budget", type=Finite(min=0), metavar="USD", help="All the panel may cost, earlier runs too.")
@click.option("--concurrency", type=click.IntRange(min=1), default=4, show_default=True, help="Items at a time.")
@engine_options
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
    engine: str,
    ray_address: str | None,
    workers: int,
    yes: bool,
    quiet: bool,
    settings: Settings,
) -> int:
    """Run both agents on every item of some benchmarks, and keep all they said in a panel.

    Stop it whenever you like, by Ctrl-C or kill -9: every answer is on the disk as soon as it is there, and the
    same command goes on from it. Sets of more than 5,000 items give five disjoint stratified folds of 1,000.

    \b
    odar eval collect starter --out runs/starter
    odar eval collect gsm8k math --data data --samples 9 --seed 42 --seed 123 \\
      --out runs/maths
    odar eval collect gsm8k --out runs/maths --engine ray --ray-address HOST:6379
    """
    announce_profile(settings)
    fetch_weights(settings, quiet=quiet)
    settings = _fitting(settings, benchmarks)
    jobs = _jobs(benchmarks, limit, seeds, Path(data) if data else None)
    asked = replace(settings, routing=replace(settings.routing, samples=samples or settings.routing.samples))
    copied = None
    if uses_local_model(settings):
        asked = patient(asked)
        concurrency, copied = (workers, None) if engine == "ray" else (copies(asked), open_copies)
    opened = open_engine(engine, WithEngine(asked, asking, copied), asked, ray_address, workers, REQUESTS)
    odar = Odar(asked)  # opens nothing: only to see what each item may take
    with open_folder(Path(out), header_of(odar, settings.routing.samples)) as folder:
        collection = Collection(odar, folder, jobs)
        todo = collection.missing()
        calls = f"at most {len(todo) * (2 + asked.routing.samples)} calls, "
        confirm(settings, todo, len(jobs), "items", calls, budget, yes=yes)
        try:
            with shown(len(jobs), len(jobs) - len(todo), quiet=quiet) as show:
                work = collection.run(opened, concurrency=concurrency, budget_usd=budget, on_progress=show)
                done = asyncio.run(work)
        finally:
            failed = failures(folder.journal, collection.items)
            folder.compact()
            _summary(folder, jobs, out)
    report_failures(failed, done)
    return exit_code(failed, done.stopped)


def _fitting(settings: Settings, names: Sequence[str]) -> Settings:
    """The settings with the prompts that these benchmarks need, and a word where they differ."""
    fitting = with_fitting_prompts(settings, [BENCHMARKS[name] for name in dict.fromkeys(names)])
    if fitting.prompts != settings.prompts:
        click.echo(f"odar: prompts = {fitting.prompts!r}: the form of the answers is scored", err=True)
    return fitting


def _jobs(names: Sequence[str], limit: int | None, seeds: Sequence[int], folder: Path | None) -> list[Job]:
    """Every item of every benchmark under every seed; the draw is the same for all seeds."""
    jobs: list[Job] = []
    for name in dict.fromkeys(names):
        benchmark = BENCHMARKS[name]
        drawn = plan(list(benchmark.load(folder)), limit=limit)
        if not drawn.tasks:
            raise InputError(f"benchmark {name} holds no items")
        check_scorer(benchmark, drawn.tasks)
        pairs = list(zip(drawn.tasks, drawn.folds, strict=True))
        jobs += [Job(benchmark, task, fold, seed) for seed in dict.fromkeys(seeds) for task, fold in pairs]
    return jobs


def _summary(folder: PanelFolder, jobs: Sequence[Job], out: str) -> None:
    done, spent = sum(job.key in folder.compacted for job in jobs), folder.spent()
    money = ", cost unknown" if spent is None else f", ${spent:.4f} spent" if spent else ""
    goes_on = "" if done == len(jobs) else "; the same command goes on from here"
    click.echo(
        f"odar: {done} of {len(jobs)} items done{money}; {out} holds {len(folder.compacted)}{goes_on}", err=True
    )
