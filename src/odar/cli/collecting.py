"""What `odar calibrate` and `odar sample` share: the bill first, then the work with a progress bar."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import click

from odar.calibration.collect import Progress, Work, collect, worst_cost
from odar.calibration.items import Item
from odar.calibration.journal import Entry, Journal
from odar.engine import Odar
from odar.errors import BudgetExceeded, InputError, OdarError
from odar.providers.base import Provider
from odar.settings import Settings

T = TypeVar("T", bound=Entry)
MOST_COPIES = 4
"""Of the embedded model; each takes half a gigabyte."""
PATIENCE = 10.0
"""Nobody waits for these answers: on a busy machine the embedded model may take this many times its usual time."""


def workers(settings: Settings) -> tuple[Settings, dict[str, Provider], int]:
    """For the embedded model: patient settings, a copy of it for each core, and how many there are.

    Copies with one thread each do more than one copy with many threads, and give the same answers.
    """
    from odar.providers.embedded import EmbeddedProvider
    from odar.providers.several import Several

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = settings.embedded.threads or 1
    copies = max(1, min(usable // threads, MOST_COPIES))
    ready: dict[str, Provider] = {
        name: Several([EmbeddedProvider(name, threads=threads, copy=number) for number in range(copies)])
        for name, provider in settings.providers.items()
        if provider.kind == "embedded"
    }
    patient = replace(
        settings,
        fast=replace(settings.fast, timeout_s=PATIENCE * settings.fast.timeout_s),
        slow=replace(settings.slow, timeout_s=PATIENCE * settings.slow.timeout_s),
        limits=replace(settings.limits, deadline_s=PATIENCE * settings.limits.deadline_s),
    )
    return patient, ready, copies


def confirm(odar: Odar, todo: Sequence[Item], total: int, calls_each: str, budget: float | None, yes: bool) -> None:
    """Say what it may cost, and ask where it is not nothing."""
    if not todo:
        return
    cost = worst_cost(odar, todo)
    price = "an unknown amount: a price is missing" if cost is None else f"at most ${cost:.2f}"
    click.echo(f"odar: {len(todo)} of {total} items to answer, {calls_each} calls each, {price}", err=True)
    if cost is None and budget is not None:
        raise BudgetExceeded("--budget cannot be kept while a price is unknown; add it to odar.toml")
    if cost != 0 and not yes:
        if not sys.stdin.isatty():
            raise InputError("this costs money; add --yes to go on")
        click.confirm("go on?", abort=True, err=True)


async def collect_visibly(
    odar: Odar,
    items: Sequence[Item],
    file: Journal[T],
    work: Work[T],
    *,
    concurrency: int,
    budget: float | None,
    quiet: bool,
) -> None:
    """`collect` with a progress bar, and a word on what failed."""
    if quiet:
        failures = await collect(odar, items, file, work, concurrency=concurrency, budget_usd=budget)
    else:
        failures = await _with_bar(odar, items, file, work, concurrency, budget)
    if failures:
        first, why = failures[0]
        some = f"{len(failures)} items failed" if len(failures) > 1 else "1 item failed"
        click.echo(f"odar: {some}, the first ({first}): {why}", err=True)


async def _with_bar(
    odar: Odar, items: Sequence[Item], file: Journal[T], work: Work[T], concurrency: int, budget: float | None
) -> list[tuple[str, OdarError]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("answering", total=len(items), completed=len(items) - len(file.missing(items)))

        def show(progress: Progress) -> None:
            spent = "" if not progress.cost_usd else f", ${progress.cost_usd:.4f}"
            failed = "" if not progress.failed else f", {progress.failed} failed"
            bar.update(task, completed=progress.done, description=f"answering{spent}{failed}")

        return await collect(odar, items, file, work, concurrency=concurrency, budget_usd=budget, on_progress=show)
